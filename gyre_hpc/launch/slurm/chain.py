"""What follows the end of an attempt in an allocation: pure, so that every way to die is a line in a test.

Source of the states: SLURM's scontrol(1), JobState.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from gyre_hpc.config.schema import Chain
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED, STOPPED, SUPERSEDED
from gyre_hpc.report.watch.squeue import seconds

MOST_FRUITLESS = 2
"""Attempts in a row that brought nothing new, after which a chain ends."""


class Next(enum.Enum):
    requeue = "requeue"
    """Put this job back into the queue."""
    leave = "leave"
    """A successor waits already, or SLURM puts the job back by itself."""
    end = "end"
    """Nothing follows; a waiting successor is cancelled."""


class Fate(enum.Enum):
    """What SLURM does with the job while the attempt ends."""

    running = "running"
    """It may stay until its time limit."""
    preempted = "preempted"
    """Better jobs want its nodes; it has its grace time."""
    requeued = "requeued"
    """SLURM puts it back by itself."""
    cancelled = "cancelled"
    timed_out = "timed_out"
    unknown = "unknown"
    """SLURM did not answer."""


FINAL = frozenset({Fate.requeued, Fate.cancelled, Fate.timed_out})
"""What it stays; a restart that is ordered after a time limit looks as if SLURM had ordered it."""


def fate_of(fields: Mapping[str, str], restarts: int) -> Fate:
    """fields: what scontrol says of the job, times in unix seconds. restarts: SLURM_RESTART_COUNT of this start. A job that is being ended
    is COMPLETING, whatever ends it (tried with SLURM 22.05): the count of its restarts, its reason, and an end before the due one tell
    one from another."""
    state = fields.get("JobState", "")
    if not state:
        return Fate.unknown
    if int(fields.get("Restarts", "0")) > restarts or state in ("PENDING", "REQUEUED", "REQUEUE_HOLD"):
        return Fate.requeued
    if state == "TIMEOUT" or fields.get("Reason") == "TimeLimit":
        return Fate.timed_out
    if state == "RUNNING":
        return Fate.running if fields.get("PreemptTime", "None") == "None" else Fate.preempted
    if state == "CANCELLED" or fields.get("ExitCode", "0:0") == "0:15":  # its script was killed
        return Fate.cancelled
    is_early = state == "COMPLETING" and fields.get("Reason") == "None" and fields.get("ExitCode") == "0:0" and _is_before_limit(fields)
    return Fate.cancelled if is_early else Fate.unknown


def ends_at(fields: Mapping[str, str]) -> float | None:
    """Unix seconds at which SLURM means to end a running job, of one that it preempts too; None: it did not say."""
    end = fields.get("EndTime", "")
    return float(end) if fields.get("JobState") == "RUNNING" and end.isdigit() else None


def _is_before_limit(fields: Mapping[str, str]) -> bool:
    """False too where a time is missing, or there is no limit."""
    start, end, limit_s = fields.get("StartTime", ""), fields.get("EndTime", ""), seconds(fields.get("TimeLimit", ""))
    return start.isdigit() and end.isdigit() and limit_s is not None and int(end) - int(start) < limit_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """An attempt is over."""

    code: int
    """Of its supervisor-0; negative: killed by that signal."""
    signal: str
    """What the job was told before (`SIGUSR2`, `SIGTERM`); empty: nothing."""
    fate: Fate
    fruitless: int
    """Attempts in a row, this one included, that made no update and journaled no token."""
    allocations: int
    """Of this chain so far, this one included."""
    is_asked: bool = False
    """A person had asked for the stop, before a signal came or after it."""


def follow(ending: Ending, chain: Chain, limit: int) -> tuple[Next, str]:
    """What to do, and why. A run that failed by its own decision (exit code 1) is not repeated: it would fail again."""
    if ending.code == 0:
        return Next.end, "the run is finished"
    if ending.code == SUPERSEDED:  # perhaps by our successor
        return Next.leave, "a newer attempt of the run lives"
    if ending.fate is Fate.requeued:
        return Next.leave, "SLURM puts the job back by itself"
    if ending.code == REFUSED:
        return Next.end, "the configuration cannot work here"
    if ending.fate is Fate.cancelled:
        return Next.end, "the job was cancelled"
    if ending.code == STOPPED and (ending.is_asked or not ending.signal):
        return Next.end, "the run was stopped"
    if ending.code > 0 and ending.code not in (STOPPED, NODE_LOST) and not ending.signal:
        return Next.end, f"the run failed with exit code {ending.code}"
    if chain is Chain.none:
        return Next.end, "launch.chain=none"
    if ending.fruitless >= MOST_FRUITLESS and ending.fate is not Fate.preempted:  # whose fault a preemption is not
        return Next.end, fruitless_reason(ending.fruitless)
    if ending.allocations >= limit:
        return Next.end, f"launch.chain_limit={limit} allocations are used up"
    return (Next.requeue if chain is Chain.requeue else Next.leave), cause(ending)


def fruitless_reason(count: int) -> str:
    """Of the crash-loop guard."""
    return f"{count} attempts in a row made no update and no new token"


_CAUSES = {
    Fate.timed_out: "the time limit came",
    Fate.preempted: "preempted",
    Fate.requeued: "SLURM puts the job back",
    Fate.cancelled: "the job was cancelled",
}


def cause(ending: Ending) -> str:
    """Of an end that was not the run's own decision."""
    if not ending.signal:
        return "a node of the core was lost" if ending.code == NODE_LOST else "its supervisor died"
    told = "told to save" if ending.signal == "SIGUSR2" else "told to end"
    return f"{_CAUSES.get(ending.fate, told)} ({ending.signal})"
