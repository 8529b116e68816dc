"""Runners: which execution runs where, and what follows when a runner is gone for the attempt.

Invariant: a life of an execution is given to one runner only, whatever happens to the controller meanwhile; one whose runner is gone goes on in
another life, since the harness may still run beyond our reach.
"""

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.records import ExecutionEnded
from gyre_hpc.machines.batch.state import State
from gyre_hpc.machines.batch.taking_up import take_up
from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.protocol.to_batch import RunnerReport

KIND = "runner-"


def take_runners(state: State, now: float, directory: Directory) -> list[Effect]:
    """Those that the directory shows set aside are gone for the attempt."""
    effects: list[Effect] = []
    for entry in directory.entries:
        if entry.aside and entry.process.startswith(KIND) and entry.process not in state.lost_runners:
            effects += _lose(state, now, entry.process, entry.lost or "set aside")
    return effects + place_known(state, now)


def claim(state: State, report: RunnerReport) -> None:
    """What a runner says it has, it has: the controller before this one gave it."""
    for execution in (*report.running, *report.queued, *(ended.execution for ended in report.ended)):
        if execution in state.unplaced and execution in state.groups.live:
            state.assignments.setdefault(execution, report.runner)


def place_known(state: State, now: float) -> list[Effect]:
    """Once every runner was heard, or is gone, what none of them has may be given away. It may have been on one that is gone."""
    if not state.unplaced or any(name not in state.runners and name not in state.lost_runners for name in state.settings.runners):
        return []
    unclaimed = [execution for execution in sorted(state.unplaced) if execution not in state.assignments]
    state.unplaced = set()
    return _elsewhere(state, now, unclaimed, "another controller gave it to a runner that may be gone") if state.lost_runners else []


def _lose(state: State, now: float, runner: str, reason: str) -> list[Effect]:
    state.lost_runners[runner] = reason
    state.runners.pop(runner, None)
    effects: list[Effect] = [Note("alarm", {"what": f"{runner} is gone", "reason": reason})]
    if state.is_without_runners:
        effects.append(Note("alarm", {"what": "no runner is left", "reason": reason}))
    theirs = [execution for execution, of in state.assignments.items() if of == runner]
    return effects + _elsewhere(state, now, theirs, f"{runner} is gone: {reason}")


def _elsewhere(state: State, now: float, executions: list[str], reason: str) -> list[Effect]:
    """Each goes on in another life; what the harness still does in the old one beyond our reach, its gateway refuses."""
    ending = {record.ended.execution for record, _ in state.pending.values() if isinstance(record, ExecutionEnded)}
    effects: list[Effect] = []
    for execution in executions:
        state.assignments.pop(execution, None)
        if execution not in state.groups.live or execution in state.restarting or execution in ending:
            continue
        effects += [Note("execution_lost", {"execution": execution, "reason": reason}), *take_up(state, now, execution, reason)]
    return effects
