"""A runner's machine on a bench: told facts by hand, its effects remembered, its records kept."""

from gyre_hpc.machines.base import (
    Effect,
    Finished,
    Input,
    Persist,
    Persisted,
    Received,
    Restarted,
    Send,
    Start,
    TimerFired,
)
from gyre_hpc.machines.execution import (
    HarnessEnd,
    RunnerMachine,
    RunnerSettings,
)
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.to_batch import Ended, RunnerReport
from gyre_hpc.protocol.to_runner import Assignment, Begin

A, B, C = "train-0-0-0", "train-0-0-1", "train-0-0-2"
SETTINGS = RunnerSettings(
    runner="runner-0", incarnation=1, gateways=("gateway-0",), capacity=8, cpus=2.0, memory_mb=1000, execution_cpus=1.0, execution_memory_mb=100
)  # fmt: skip
WELL = HarnessEnd(code=0, started=True, finished=True, cpu_s=0.5)


class Bench:
    """Feeds one machine; persists at once unless told otherwise."""

    def __init__(self, records: tuple = (), *, persist: bool = True, swept: bool = True) -> None:
        self.machine = RunnerMachine(SETTINGS, Register("runner-0", 1, "http://r", 1))
        self.now, self.effects, self.number, self.persist = 0.0, list[Effect](), 0, persist
        self.log: list = list(records)
        self.tell(Restarted(records))
        if swept:
            self.tell(Finished("sweep"))
        self.tell(Received("supervisor-0", Directory(1, (Entry("gateway-0", 1, "http://g"),))))

    def tell(self, told: Input) -> list[Effect]:
        effects = self.machine.handle(self.now, told)
        self.effects += effects
        if self.persist:
            for effect in list(effects):
                if isinstance(effect, Persist):
                    self.log.append(effect.record)
                    effects = effects + self.tell(Persisted(effect.key))
        return effects

    def assign(self, *executions: str, acked: tuple[str, ...] = ()) -> list[Effect]:
        self.number += 1
        begins = tuple(Begin(execution, "train", 0, 60.0, 75.0) for execution in executions)
        return self.tell(Received("controller", Assignment(self.number, begins, acked)))

    def report(self) -> RunnerReport:
        effects = self.tell(TimerFired("report"))
        return next(effect.message for effect in effects if isinstance(effect, Send))

    def running(self, *executions: str) -> "Bench":
        self.assign(*executions)
        for execution in executions:
            self.tell(Finished(f"prepare/{execution}"))
        return self

    def ended(self) -> dict[str, Ended]:
        return {ended.execution: ended for ended in self.report().ended}


def starts(effects: list[Effect], kind: type) -> list:
    return [e.action for e in effects if isinstance(e, Start) and isinstance(e.action, kind)]
