"""What follows the end of an attempt in an allocation: pure, so that every way to die is a line in a test.

Source of the states: SLURM's scontrol(1), JobState.
"""

import enum
from dataclasses import dataclass

from gyre_hpc.config.schema import Chain
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED, SUPERSEDED

STOPPED = 130
MOST_FRUITLESS = 2
"""Attempts in a row that brought nothing new, after which a chain ends."""


class Next(enum.Enum):
    requeue = "requeue"
    """Put this job back into the queue."""
    leave = "leave"
    """A successor waits already, or SLURM puts the job back by itself."""
    end = "end"
    """Nothing follows; a waiting successor is cancelled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """An attempt is over."""

    code: int
    """Of its supervisor-0."""
    signal: str
    """What the job was told before (`SIGUSR2`, `SIGTERM`); empty: nothing."""
    is_cancelled: bool
    """SLURM says that somebody cancelled the job."""
    fruitless: int
    """Attempts in a row, this one included, that made no update and journaled no token."""
    allocations: int
    """Of this chain so far, this one included."""


def follow(ending: Ending, chain: Chain, limit: int) -> tuple[Next, str]:
    """What to do, and why. A run that failed by its own decision (exit code 1) is not repeated: it would fail again."""
    if ending.code == 0:
        return Next.end, "the run is finished"
    if ending.code == SUPERSEDED:
        return Next.end, "a newer attempt of the run lives"
    if ending.code == REFUSED:
        return Next.end, "the configuration cannot work here"
    if ending.is_cancelled:
        return Next.end, "the job was cancelled"
    if ending.code == STOPPED and not ending.signal:
        return Next.end, "the run was stopped"
    if ending.code > 0 and ending.code not in (STOPPED, NODE_LOST):
        return Next.end, f"the run failed with exit code {ending.code}"
    if chain is Chain.none:
        return Next.end, "launch.chain=none"
    if ending.fruitless >= MOST_FRUITLESS:
        return Next.end, f"{ending.fruitless} attempts in a row made no update and no new token"
    if ending.allocations >= limit:
        return Next.end, f"launch.chain_limit={limit} allocations are used up"
    why = ending.signal or ("a node of the core was lost" if ending.code == NODE_LOST else "its supervisor died")
    return (Next.requeue, why) if chain is Chain.requeue else (Next.leave, why)
