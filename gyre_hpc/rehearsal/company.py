"""Everything that outlives a scenario: cells, warden, sandbox, configuration of one harness."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import Config, GatewayConfig, HarnessConfig, ModelConfig, SandboxConfig
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.rehearsal.actor import Actor, wrong_files
from gyre_hpc.rehearsal.base import VERSIONS, Scenario
from gyre_hpc.rehearsal.cells import Cell, Happening, cell_argv
from gyre_hpc.rehearsal.dialects import Dialect, dialect_of
from gyre_hpc.rehearsal.director import Director
from gyre_hpc.rehearsal.scenarios import SCENARIOS
from gyre_hpc.rehearsal.stage import Stage
from gyre_hpc.rehearsal.verdict import Evidence, Outcome, judge
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.sandboxes import create_sandbox

NUM_CELLS = 2
TOKENIZER = Path(__file__).resolve().parent / "tokenizer"
"""A byte-level one of 3,000 words, made of this project's own text, so that rehearsals and recordings hang on no download."""
MAX_CONTEXT = {"scripted": 400_000, "embedded": 64_000}
"""Tokens, by engine: what is computed must also fit into memory."""
KEEPALIVE_S = 0.3
_DIED = "the warden died"


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What is rehearsed, and where."""

    harness: str
    folder: Path
    version: str = ""
    cache: str = ""
    engine: str = "scripted"
    sandbox: SandboxConfig | None = None
    deadline_s: float = 120.0
    """Longest life of one scenario."""
    keep: bool = False


class Company:
    """Lifecycle: `company(...)` -> perform, scenario by scenario."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal, self.dialect = rehearsal, dialect_of(rehearsal.harness)
        self.run_token = secrets.token_hex(16)
        self.config = config_of(rehearsal, self.dialect)
        self.chat_format = create_chat_format(self.config.model)
        self.first_prompt = 0
        """Tokens of the main agent's first prompt, once known."""
        self._sandbox = create_sandbox(self.config.sandbox.kind)
        self._harnesses = Harnesses()
        self._happenings: asyncio.Queue[Happening | None] = asyncio.Queue()
        self.cells = [self._cell(number) for number in range(NUM_CELLS)]

    def _cell(self, number: int) -> Cell:
        model = self.config.model
        argv = cell_argv(
            self.rehearsal.engine, harness=self.rehearsal.harness, tokenizer=model.tokenizer, template=model.template,
            interface=self.config.network.interface, max_context=MAX_CONTEXT[self.rehearsal.engine],
        )  # fmt: skip
        return Cell(number, argv, self.run_token, self.rehearsal.folder / f"cell-{number}.log", self._happenings.put_nowait)

    async def start(self) -> None:
        """Raises CellFailed, UserError."""
        self.rehearsal.folder.mkdir(parents=True, exist_ok=True)
        await self._harnesses.start(died=lambda reason: None)
        await self._raise_cells()

    async def close(self) -> None:
        await self._harnesses.close()
        await asyncio.gather(*(cell.close() for cell in self.cells))

    async def perform(self, scenario: Scenario) -> tuple[Outcome, "Performance"]:
        """Raises CellFailed."""
        await self._raise_cells()
        while not self._happenings.empty():
            self._happenings.get_nowait()
        place = SCENARIOS.index(scenario)
        execution = f"train-0-{place}-0"
        config = self._of_scenario(scenario)
        stage = Stage(self.rehearsal.folder / scenario.name, config, self.run_token, self.cells)
        actor = Actor(config, self.run_token, self.dialect, self._sandbox, self._scratch(), self._harnesses)
        begin = Begin(execution, "train", place, self.rehearsal.deadline_s, self.rehearsal.deadline_s)
        await stage.start()
        try:
            await actor.prepare(begin)
            played = await Director(stage, self._happenings).play(actor, begin, self.rehearsal.deadline_s)
            wrong = wrong_files(actor.workspace(execution), scenario.files)
            await actor.remove(execution)
        finally:
            await stage.close()
        evidence = Evidence(
            scenario=scenario, dialect=self.dialect, played=played, records=stage.records(), execution=execution,
            wrong_files=wrong, counters=stage.counters(), faults=[str(fields) for kind, fields in stage.notes if kind == "token_fault"],
        )  # fmt: skip
        outcome = judge(evidence, self.chat_format)
        self.first_prompt = self.first_prompt or outcome.first_prompt
        return outcome, Performance(stage=stage, evidence=evidence, decode=self.chat_format.tokenizer.decode)

    async def _raise_cells(self) -> None:
        """All of them alive and serving the older weights."""
        await asyncio.gather(*(cell.start() for cell in self.cells if not cell.is_alive))
        for cell in self.cells:
            if cell.is_serving:
                await cell.leave()
            await cell.serve(VERSIONS[0])

    def _of_scenario(self, scenario: Scenario) -> Config:
        """Its window and its longest answer."""
        config = self.config
        longest = scenario.longest_answer or config.harness.max_output_tokens
        harness, model = replace(config.harness, max_output_tokens=longest), config.model
        dialect = self.dialect
        window = self.first_prompt + (dialect.window or scenario.window)
        if scenario.window and scenario.is_refused:
            model = replace(model, max_context=window)
        elif scenario.window:
            harness = replace(harness, context_tokens=int(window / dialect.window_used) + dialect.window_kept)
        return replace(config, harness=harness, model=model)

    def _scratch(self) -> Path:
        scratch = self.rehearsal.folder / "workspaces"
        scratch.mkdir(mode=0o700, exist_ok=True)
        return scratch


@dataclass(frozen=True, kw_only=True)
class Performance:
    """What a scenario left, for a recording."""

    stage: Stage
    evidence: Evidence
    decode: Callable[[Sequence[int]], str]


@contextlib.asynccontextmanager
async def company(rehearsal: Rehearsal) -> AsyncIterator[Company]:
    """Started, and nothing of it left afterwards."""
    here = Company(rehearsal)
    try:
        await here.start()
        yield here
    finally:
        await here.close()


def config_of(rehearsal: Rehearsal, dialect: Dialect) -> Config:
    """The run's configuration as a rehearsal has it."""
    config = Config(
        experiment="rehearsal",
        model=ModelConfig(tokenizer=str(TOKENIZER), template="chatml", max_context=MAX_CONTEXT[rehearsal.engine]),
        harness=HarnessConfig(name=rehearsal.harness, **dialect.options),
        sandbox=rehearsal.sandbox or SandboxConfig(memory_mb=4096, max_processes=256, disk_mb=512),
        gateway=GatewayConfig(progress_tokens=16, keepalive_s=KEEPALIVE_S),
    )
    config.paths.cache = rehearsal.cache
    config.debug.keep_workspaces = rehearsal.keep
    config.harness.version = rehearsal.version
    return config
