"""What earlier attempts of the run recorded of an execution, as a shard is told of it."""

from collections.abc import Mapping, Sequence

from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.protocol.journal import ExecutionEnd, Record
from gyre_hpc.trajectory.lives import counting


def earlier_of(execution: str, by_attempt: Mapping[int, Sequence[Record]]) -> Earlier:
    """What counts of an execution's records, by attempt."""
    return Earlier(execution, tuple(sorted(by_attempt)), tuple(counting(by_attempt)))


def is_over(by_attempt: Mapping[int, Sequence[Record]]) -> bool:
    """The newest attempt says that it takes no more calls of it."""
    return any(isinstance(record, ExecutionEnd) for record in by_attempt[max(by_attempt)])
