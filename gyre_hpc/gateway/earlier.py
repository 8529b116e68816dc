"""What earlier attempts of the run recorded of the executions of one shard: read once, at the shard's start.

All shards' segments are read, since another number of shards gives executions to others. What an execution said that is over is left
out. A torn end is none of ours to repair; damage before it raises, as in `read_journal`.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.machines.call.earlier import earlier_of, is_over
from gyre_hpc.protocol.identity import shard_of
from gyre_hpc.protocol.journal import Record, execution_of
from gyre_hpc.trajectory.segment import attempt_of, read_records


def read_earlier(folder: Path, shard: str, shards: Sequence[str], attempt: int) -> tuple[Earlier, ...]:
    """Of every execution of `shard` that has not ended in the newest attempt before `attempt` that knows it. Raises DamagedSegment."""
    found: defaultdict[str, defaultdict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.gyj")):
        if (number := attempt_of(path)) >= attempt:
            continue
        for record in read_records(path.read_bytes())[0]:
            found[execution_of(record)][number].append(record)
    return tuple(
        earlier_of(execution, by_attempt)
        for execution, by_attempt in found.items()
        if shard_of(execution, shards) == shard and not is_over(by_attempt)
    )
