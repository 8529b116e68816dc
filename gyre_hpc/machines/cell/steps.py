"""One step at a time: the running step, its deadline, and the wait before a failed one is tried again."""

from dataclasses import dataclass

from gyre_hpc.machines.base import CancelTimer, Effect, Persist, SetTimer, Start
from gyre_hpc.machines.cell.actions import Action, AppliedRecord, step_name

DEADLINE, RETRY = "step_deadline", "step_retry"
"""Timers owned here."""

_ENGINE_ALONE = frozenset({"open_admission", "update_engine_weights", "wake_engine"})
"""Steps towards rollout that need nothing but the cell's own engine and store."""


@dataclass(kw_only=True, slots=True)
class Step:
    key: str
    name: str
    action: Action | AppliedRecord
    began: float


@dataclass(kw_only=True, slots=True)
class Steps:
    """At most one step runs. A step that misses its deadline is not given up, as nobody knows what it did: the report says so."""

    retry_s: float
    persist_deadline_s: float
    running: Step | None = None
    failed: str = ""
    """Name of the step that failed and waits for RETRY."""
    error: str = ""
    """What went wrong last and was not cured since."""
    count: int = 0

    @property
    def broken(self) -> str:
        """Why a step fails, and is tried again, in which nobody else has a part; empty: none does."""
        return self.error if self.failed in _ENGINE_ALONE else ""

    def begin(self, now: float, action: Action | AppliedRecord) -> list[Effect]:
        assert self.running is None, f"{self.running} still runs"
        self.count += 1
        name = step_name(action)
        self.running = Step(key=f"{name}#{self.count}", name=name, action=action, began=now)
        if isinstance(action, AppliedRecord):
            begun: Effect = Persist(self.running.key, action)
            deadline_s = self.persist_deadline_s
        else:
            begun, deadline_s = Start(self.running.key, action), action.deadline_s
        return [SetTimer(DEADLINE, deadline_s), begun]

    def is_running(self, key: str) -> bool:
        return self.running is not None and self.running.key == key

    def end(self, key: str) -> Step | None:
        """The running step, if `key` is its key; it runs no more."""
        step = self.running
        if step is None or step.key != key:
            return None
        self.running = None
        return step

    def succeed(self) -> list[Effect]:
        self.error = self.failed = ""
        return [CancelTimer(DEADLINE), CancelTimer(RETRY)]

    def fail(self, step: Step, reason: str, again: bool) -> list[Effect]:
        """`again`: the same step waits for RETRY; another step need not."""
        self.error = f"{step.name}: {reason}"
        if not again:
            return [CancelTimer(DEADLINE)]
        self.failed = step.name
        return [CancelTimer(DEADLINE), SetTimer(RETRY, self.retry_s)]

    def overdue(self) -> None:
        """DEADLINE fired."""
        if self.running is not None:
            self.error = f"{self.running.name} missed its deadline"

    def must_wait(self, action: Action | AppliedRecord) -> bool:
        return self.failed == step_name(action)

    @property
    def waiting(self) -> str:
        if self.running is None:
            return f"another try of {self.failed} (in {self.retry_s:g} s)" if self.failed else ""
        action = self.running.action
        deadline_s = self.persist_deadline_s if isinstance(action, AppliedRecord) else action.deadline_s
        return f"{self.running.name} (deadline {deadline_s:g} s)"
