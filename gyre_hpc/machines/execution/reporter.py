"""Reports to the batch machine: at changes, coalesced, and every second anyway."""

from collections.abc import Iterable

from gyre_hpc.machines.base import Effect, Send, SetTimer, Start
from gyre_hpc.machines.execution.actions import MeasureUsage
from gyre_hpc.machines.execution.life import Life, Stage
from gyre_hpc.machines.execution.settings import RunnerSettings
from gyre_hpc.protocol.to_batch import Ended, RunnerReport

REPORT, USAGE, CONTROLLER = "report", "usage", "controller"


class Reporter:
    """Owns the timer REPORT and the action USAGE."""

    def __init__(self, settings: RunnerSettings) -> None:
        self.harness_cpu_s = 0.0
        self.storage_full = ""
        self._settings = settings
        self._seq = 0
        self._is_soon = False
        self._measuring = False
        self._cpu_s = 0.0

    def soon(self) -> list[Effect]:
        """Something changed."""
        if self._is_soon:
            return []
        self._is_soon = True
        return [SetTimer(REPORT, self._settings.coalesce_s)]

    def due(self, assignment: int, lives: Iterable[Life], ended: tuple[Ended, ...]) -> list[Effect]:
        """REPORT fired."""
        self._is_soon = False
        self._seq += 1
        effects: list[Effect] = [Send(CONTROLLER, self._document(assignment, tuple(lives), ended))]
        effects.append(SetTimer(REPORT, self._settings.report_s))
        if not self._measuring:
            self._measuring = True
            effects.append(Start(USAGE, MeasureUsage()))
        return effects

    def measured(self, cpu_s: object) -> list[Effect]:
        """USAGE ended; None if it failed."""
        self._measuring = False
        if isinstance(cpu_s, float):
            self._cpu_s = cpu_s
        return []

    def _document(self, assignment: int, lives: tuple[Life, ...], ended: tuple[Ended, ...]) -> RunnerReport:
        return RunnerReport(
            runner=self._settings.runner,
            incarnation=self._settings.incarnation,
            seq=self._seq,
            assignment=assignment,
            running=tuple(life.id for life in lives if life.stage is not Stage.queued),
            queued=tuple(life.id for life in lives if life.stage is Stage.queued),
            ended=ended,
            capacity=self._settings.room,
            cpu_s=self._cpu_s,
            harness_cpu_s=self.harness_cpu_s,
            storage_full=self.storage_full,
        )
