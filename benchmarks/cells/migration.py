"""A conversation of 4,096 tokens goes on at another cell: with its KV moved there, against prefilling it there.

Two real cell processes (torchrun, HTTP, orders as the controller sends them) with an embedded engine. Each round: the conversation is
computed at cell-0; cell-0 is ordered to train and gives its KV to cell-1; cell-1 is asked to go on, up to its first token. Moved =
seconds of cell-0's steps that list and move, as it reports them, plus that first token; prefilled = the first token of another
conversation of the same length, which cell-1 has never seen.
"""

import json
import statistics
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gyre_hpc.config.schema import ClusterConfig, Config, ModelConfig
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellReport, CellState
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget
from tests.fakes.cell_stage import TOKEN, Stage

TOKENS = 4096
MODEL = ModelConfig(
    hidden_size=512, num_layers=6, num_heads=8, num_kv_heads=4, head_dim=64, intermediate_size=1536, max_context=8192, init_std=0.05
)
_PATIENCE_S = 300.0
_MOVING = ("list_conversations", "move_kv")
"""Steps of a cell that leaves rollout which exist for the sake of KV alone."""


@dataclass(slots=True)
class Migration:
    """Seconds of each round."""

    parameters_m: float
    kv_mb: float
    steps: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    prefilled: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(self.moved) / statistics.median(self.prefilled)

    def table(self) -> str:
        lines = [f"KV of {TOKENS} tokens, {self.parameters_m:.1f} M parameters, {self.kv_mb:.0f} MB; medians of {len(self.moved)}"]
        for name, values in (("list and move", self.steps), ("... and first token", self.moved), ("prefilled there", self.prefilled)):
            lines.append(f"  {name:<22}{statistics.median(values):>8.3f} s   {min(values):.3f}-{max(values):.3f}")
        return "\n".join(lines)


def measure(folder: Path, rounds: int, kind: str) -> Migration:
    """Raises AssertionError with a cell's log when a cell does not do its part."""
    config = Config(model=MODEL, cluster=ClusterConfig(cells=2))
    config.engine.kv_tokens = 5 * TOKENS
    config.transport.kv, config.transport.kv_budget_s = kind, 60.0
    kv_bytes = 4 * 2 * MODEL.num_layers * MODEL.num_kv_heads * MODEL.head_dim * TOKENS
    with Stage(folder, config) as stage:
        cells = _Cells(stage)
        found = Migration(cells.parameters_m(), kv_bytes / 1e6)
        for number in range(rounds):
            moved = _conversation(2 * number)
            call = f"train-0-0-{number}"
            first = cells.first_token("cell-0", moved, f"{call}/1")[0]
            report = cells.lend(call)
            assert any(one.call.startswith(call) for one in report.moved), f"nothing moved: {stage.log('cell-0')}"
            steps = sum(report.switch.steps.get(name, 0.0) for name in _MOVING) if report.switch is not None else 0.0
            taken, cached = cells.first_token("cell-1", [*moved, first], f"{call}/2")[1:]
            assert cached >= TOKENS - 2 * config.engine.page_size, f"cell-1 found only {cached} tokens"
            prefilled, cached = cells.first_token("cell-1", _conversation(2 * number + 1), "")[1:]
            assert cached == 0
            found.steps.append(steps)
            found.moved.append(steps + taken)
            found.prefilled.append(prefilled)
            cells.recall()
    return found


class _Cells:
    """cell-0 serves version 0, and cell-1 what it pulled from there."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._term = stage, 1
        for cell in ("cell-0", "cell-1"):
            stage.start(cell)
        stage.wait_registered("cell-0", "cell-1")
        stage.order("cell-0", term=1, role=Role.rollout, is_core=True, version=Version(0, 0), update=0)
        source = self._until(CellState.rollout, "cell-0")
        stage.order("cell-1", term=1, role=Role.rollout, version=Version(0, 0), update=0, sources=(source.snapshot_url,))
        self._until(CellState.rollout, "cell-1")
        for cell in ("cell-0", "cell-1"):
            self.first_token(cell, _conversation(999)[:600], "")

    def lend(self, execution: str) -> CellReport:
        """cell-0 to training; its report when it is there."""
        self._term += 1
        kv = KvOrder((KvTarget("cell-1", 2 * TOKENS),), (execution,), 60.0)
        self._stage.order("cell-0", term=self._term, role=Role.train, is_core=True, version=Version(0, 0), update=0, kv=kv)
        return self._until(CellState.train, "cell-0")

    def recall(self) -> None:
        self._term += 1
        self._stage.order("cell-0", term=self._term, role=Role.rollout, is_core=True, version=Version(0, 0), update=0)
        self._until(CellState.rollout, "cell-0")

    def first_token(self, cell: str, ids: Sequence[int], call: str) -> tuple[int, float, int]:
        """The token, seconds until it was here, tokens whose KV was found."""
        params = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 1, "custom_params": {"call": call, "key": "aa", "position": 0}}
        request = urllib.request.Request(
            f"{self._stage.report(cell).engine_url}/generate",
            data=json.dumps({"input_ids": list(ids), "sampling_params": params}).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            told = json.loads(answer.read())
        return int(told["output_ids"][0]), time.perf_counter() - begin, int(told["meta_info"]["cached_tokens"])

    def parameters_m(self) -> float:
        per_layer = MODEL.hidden_size * MODEL.head_dim * 2 * (MODEL.num_heads + MODEL.num_kv_heads)
        return MODEL.num_layers * (per_layer + 3 * MODEL.hidden_size * MODEL.intermediate_size) / 1e6

    def _until(self, state: CellState, cell: str) -> CellReport:
        term = self._term if cell == "cell-0" else 1
        return self._stage.until(cell, lambda report: (report.state, report.term) == (state, term), f"{cell} in {state.value}", _PATIENCE_S)


def _conversation(number: int) -> list[int]:
    """TOKENS ids, other ones for each number."""
    return [int(id) for id in np.random.default_rng(number).integers(0, 200, TOKENS)]
