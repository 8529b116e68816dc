"""What earlier attempts of the run recorded of the executions of one shard: read once, at the shard's start.

All shards' segments are looked at, since another number of shards gives executions to others. What an execution said that is over is left
out, and segments that hold nothing else are not read. A torn end is none of ours to repair; damage before it raises, as in `read_journal`.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.machines.call.earlier import earlier_of, is_over
from gyre_hpc.protocol.identity import shard_of
from gyre_hpc.protocol.journal import ENDED, Record, execution_of
from gyre_hpc.shell.journal_files import contents_of, records_in
from gyre_hpc.trajectory.segment import attempt_of


def read_earlier(folder: Path, shard: str, shards: Sequence[str], attempt: int) -> tuple[Earlier, ...]:
    """Of every execution of `shard` that has not ended in the newest attempt before `attempt` that knows it. Raises DamagedSegment."""
    paths = [path for path in sorted(folder.glob("*.gyj")) if attempt_of(path) < attempt]
    held = {path: contents_of(path).marks for path in paths}
    newest: dict[str, tuple[int, int]] = {}
    """Execution -> newest attempt that knows it, and its marks there."""
    for path, marks in held.items():
        number = attempt_of(path)
        for execution, mark in marks.items():
            known, before = newest.get(execution, (number, 0))
            if number >= known:
                newest[execution] = number, mark | (before if number == known else 0)
    wanted = {execution for execution, (_, mark) in newest.items() if not mark & ENDED and shard_of(execution, shards) == shard}
    found: defaultdict[str, defaultdict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        if not wanted.isdisjoint(held[path]):
            for record in records_in(path, wanted.__contains__):
                found[execution_of(record)][attempt_of(path)].append(record)
    # A process of an earlier attempt may have written on meanwhile.
    return tuple(earlier_of(execution, by_attempt) for execution, by_attempt in found.items() if not is_over(by_attempt))
