"""The harness of a rehearsal, started by the runner's own pieces: workspace, sandbox, warden, command line."""

from collections.abc import Mapping
from pathlib import Path

from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses import create_harness
from gyre_hpc.machines.execution import HarnessEnd, PrepareWorkspace, RemoveWorkspace, RunHarness, StopHarness
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.rehearsal.dialects import Dialect
from gyre_hpc.rehearsal.scenarios import SCENARIOS
from gyre_hpc.rehearsal.script import instruction
from gyre_hpc.runner.deeds import Deeds
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.runner.scorer import Scorer
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import Sandbox
from gyre_hpc.suites.base import Score, Suite, Task


class RehearsalSuite(Suite):
    """Its tasks are the scenarios, by their place."""

    name = "rehearsal"

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def task(self, split: str, index: int) -> Task:
        scenario = SCENARIOS[index]
        return Task(
            suite=self.name, split=split, index=index, family=scenario.name, instruction=instruction(scenario, self._dialect),
            files={"README.txt": "Nothing to see here.\n"},
        )  # fmt: skip

    def score(self, task: Task, workspace: Path) -> Score:
        wrong = wrong_files(workspace, SCENARIOS[task.index].files)
        return Score(value=float(not wrong), passed=not wrong)


def wrong_files(workspace: Path, wanted: Mapping[str, str]) -> list[str]:
    """What is not as it should be, one line each."""
    wrong = []
    for name, text in wanted.items():
        path = workspace / name
        found = path.read_text(errors="replace") if path.is_file() and not path.is_symlink() else None
        if found != text:
            wrong.append(f"{name} is {'missing' if found is None else repr(found[:60])}, not {text[:60]!r}")
    return wrong


class Actor:
    """Runs the harness of `config`. Lifecycle: prepare -> run (halt) -> remove, by one `Harnesses` for all scenarios."""

    def __init__(self, config: Config, run_token: str, dialect: Dialect, sandbox: Sandbox, scratch: Path, harnesses: Harnesses) -> None:
        self._workspaces = Workspaces(scratch, keep=config.debug.keep_workspaces)
        self._deeds = Deeds(
            config=config,
            run_token=run_token,
            suite=RehearsalSuite(dialect),
            harness=create_harness(config.harness.name),
            sandbox=sandbox,
            workspaces=self._workspaces,
            harnesses=harnesses,
            scorer=Scorer(scratch),
        )

    def workspace(self, execution: str) -> Path:
        return self._workspaces.path(execution)

    async def prepare(self, begin: Begin) -> None:
        await self._deeds.prepare("", PrepareWorkspace(begin), lambda item: None)

    async def run(self, begin: Begin, gateway: str) -> HarnessEnd:
        """Until it and everything it started is gone."""
        return await self._deeds.run("", RunHarness(begin, gateway), lambda item: None)

    async def halt(self, execution: str) -> None:
        await self._deeds.stop("", StopHarness(execution, True), lambda item: None)

    async def remove(self, execution: str) -> None:
        await self._deeds.remove("", RemoveWorkspace(execution), lambda item: None)
