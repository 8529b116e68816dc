"""Real cell processes give their KV away when they leave rollout, and nobody is held up by one that dies over it (faults.md C9, C10)."""

import json
import os
import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.schema import ClusterConfig, Config, EngineKind, ModelConfig, TrainerKind
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellReport, CellState, Moved
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget
from tests.fakes.cell_stage import TOKEN, Stage
from tests.fakes.live_run import descendants, wait_for

V0 = Version(0, 0)
LIVE, WAITING = "train-0-0-0", "train-0-0-1"
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6] * 30
"""240 tokens: 15 full pages."""
GREEDY = {"temperature": 0.0, "ignore_eos": True}


def config(ranks: int = 1, kind: EngineKind = EngineKind.embedded) -> Config:
    model = ModelConfig(
        hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=48, max_context=1024, init_std=0.2
    )
    made = Config(model=model, cluster=ClusterConfig(cells=2, ranks_per_cell=ranks))
    made.engine.kv_tokens, made.engine.kind = 4096, kind
    made.trainer.kind = TrainerKind.timed if kind is EngineKind.timed else TrainerKind.embedded
    return made


def start(stage: Stage) -> None:
    """cell-0 serves version 0, and cell-1 what it pulled from there."""
    for cell in ("cell-0", "cell-1"):
        stage.start(cell)
    stage.wait_registered("cell-0", "cell-1")
    stage.order("cell-0", term=1, role=Role.rollout, is_core=True, version=V0, update=0)
    source = stage.until("cell-0", serving(1), "the core serves")
    stage.order("cell-1", term=1, role=Role.rollout, version=V0, update=0, sources=(source.snapshot_url,))
    stage.until("cell-1", serving(1), "the other cell serves")
    stage.until("cell-1", lambda report: report.kv.free_tokens, "room for KV")


def serving(term: int) -> Any:
    return lambda report: report.state is CellState.rollout and report.term == term


def ask(stage: Stage, cell: str, ids: list[int], num_tokens: int, call: str, position: int = 0) -> dict[str, Any]:
    params = {**GREEDY, "max_new_tokens": num_tokens, "custom_params": {"call": call, "key": "aa", "position": position}}
    return stage.generate(cell, input_ids=ids, sampling_params=params, return_logprob=True)


def num_sampled(stage: Stage) -> int:
    """By cell-0's engine, as of now."""
    request = urllib.request.Request(f"{stage.report('cell-0').engine_url}/server_info", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.loads(answer.read())["counters"]["sampled"])


class LiveCall:
    """A long call on cell-0."""

    def __init__(self, stage: Stage) -> None:
        self.answer: dict[str, Any] = {}
        before = num_sampled(stage)
        self._thread = threading.Thread(target=self._run, args=(stage,))
        self._thread.start()
        wait_for(lambda: num_sampled(stage) > before, "the call is being computed")

    def _run(self, stage: Stage) -> None:
        self.answer.update(ask(stage, "cell-0", PROMPT[::-1], 700, f"{LIVE}/1"))

    def end(self) -> dict[str, Any]:
        self._thread.join(30)
        assert self.answer
        return self.answer


def lend(stage: Stage, budget_s: float, free_tokens: int = 3000) -> None:
    kv = KvOrder((KvTarget("cell-1", free_tokens),), (LIVE, WAITING), budget_s)
    stage.order("cell-0", term=2, role=Role.train, is_core=True, version=V0, update=0, kv=kv)


def training(report: CellReport) -> bool:
    return report.state is CellState.train and report.term == 2


@pytest.mark.parametrize(
    ("kind", "ranks"), [pytest.param(EngineKind.embedded, 1, marks=pytest.mark.rare), (EngineKind.embedded, 2), (EngineKind.timed, 1)]
)
def test_conversations_go_on_at_another_cell_with_their_kv(tmp_path: Path, kind: EngineKind, ranks: int) -> None:
    """Two ranks hold one model together: each sends its part of a page. Timed engines move keys alone."""
    with Stage(tmp_path, config(ranks, kind)) as stage:
        start(stage)
        waiting = ask(stage, "cell-0", PROMPT, 20, f"{WAITING}/1")
        expected = ask(stage, "cell-0", PROMPT + waiting["output_ids"] + [7] * 9, 12, "")
        built = stage.report("cell-0").groups_built
        live = LiveCall(stage)
        lend(stage, budget_s=20.0)
        report = stage.until("cell-0", training, "cell-0 trains")
        assert set(report.moved) == {Moved(f"{LIVE}/1", "cell-1"), Moved(f"{WAITING}/1", "cell-1")}, stage.log("cell-0")
        assert report.groups_built == built
        begun = live.end()
        assert begun["meta_info"]["finish_reason"]["moved_to"] == "cell-1"
        num_done = len(begun["output_ids"])
        rest = ask(stage, "cell-1", PROMPT[::-1] + begun["output_ids"], 700 - num_done, f"{LIVE}/1", num_done)
        # All that was full when it was leased; what was computed since is prefilled here.
        assert 240 <= rest["meta_info"]["cached_tokens"] <= 240 + num_done
        whole = ask(stage, "cell-1", PROMPT[::-1], 700, "")
        assert begun["output_ids"] + rest["output_ids"] == whole["output_ids"]
        again = ask(stage, "cell-1", PROMPT + waiting["output_ids"] + [7] * 9, 12, f"{WAITING}/2")
        assert again["meta_info"]["cached_tokens"] == 256
        assert again["output_ids"] == expected["output_ids"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_silent_target_holds_up_nothing(tmp_path: Path, end: signal.Signals) -> None:
    with Stage(tmp_path, config()) as stage:
        start(stage)
        ask(stage, "cell-0", PROMPT, 20, f"{WAITING}/1")
        live = LiveCall(stage)
        ranks = [pid for pid in descendants(stage.processes["cell-1"].pid) if b"processes.cell\0" in command_line(pid)]
        assert ranks
        for pid in ranks:
            os.kill(pid, end)
        lend(stage, budget_s=1.0)
        report = stage.until("cell-0", training, "cell-0 trains all the same")
        assert report.moved == () and not report.error
        assert "moved_to" not in live.end()["meta_info"]["finish_reason"]
        for pid in ranks:
            if end is signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
        if end is signal.SIGSTOP:
            # What the silent one was asked for is of no use to it any more, and costs it nothing.
            wait_for(lambda: stage.report("cell-1").kv.free_tokens >= 3000, "all room free again")
            assert ask(stage, "cell-1", PROMPT, 5, f"{WAITING}/2")["output_ids"]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
