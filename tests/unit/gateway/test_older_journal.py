"""Journals of format 3, as the gyre_hpc before replay wrote them: a run that was killed in mid-batch is taken up by another attempt.

tests/fixtures/run_of_format_1 holds such a journal of a run that was finished; what ends an execution is left out here.
"""

import struct
from pathlib import Path

from gyre_hpc.gateway.earlier import read_earlier
from gyre_hpc.protocol.journal import CallBegin, ExecutionEnd, Record, TakenUp
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.segment import HEADER_SIZE, MAGIC, frame, read_records
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld

OLD = Path(__file__).parents[2] / "fixtures" / "run_of_format_1" / "journal" / "gateway-0-1-000000.gyj"
SHARDS = ("gateway-0",)


def cut_off(folder: Path) -> list[Record]:
    """The old journal as if the run had been killed before anything ended; its records."""
    records = [record for record in read_records(OLD.read_bytes())[0] if not isinstance(record, ExecutionEnd)]
    head = OLD.read_bytes()[:HEADER_SIZE]
    assert head == MAGIC + struct.pack("<I", 3)
    (folder / OLD.name).write_bytes(head + b"".join(map(frame, records)))
    return records


def test_every_execution_that_had_not_ended_is_known_to_the_shard_of_the_next_attempt(tmp_path: Path) -> None:
    records = cut_off(tmp_path)
    found = read_earlier(tmp_path, "gateway-0", SHARDS, 2)
    executions = {record.execution for record in records if isinstance(record, CallBegin)}
    assert {one.execution for one in found} == executions and len(executions) > 1
    assert sum(len(one.records) for one in found) == len(records)
    assert read_earlier(OLD.parent, "gateway-0", SHARDS, 2) == ()


def test_its_calls_have_no_likeness_so_that_a_new_life_samples_anew_and_is_trained_on_that_alone(tmp_path: Path) -> None:
    records = cut_off(tmp_path)
    earlier = read_earlier(tmp_path, "gateway-0", SHARDS, 2)
    execution = earlier[0].execution
    world = CallWorld()
    world._begin(earlier)  # type: ignore[arg-type]
    world.set_table(row(0))
    world.clients.append(Client(execution, "main", 2, False, asks={"life": 1, "likeness": "ab"}))
    world.settle()
    taken = next(record for record in world.journal if isinstance(record, TakenUp))
    assert (taken.attempts, taken.life) == ((1,), 1) and taken.known
    fold = JournalFold()
    for record in records:
        fold.add(record, 1)
    before = {call.id for call in fold.execution(execution) if call.delivered}
    for record in world.journal:
        fold.add(record, 2)
    delivered = {call.id for call in fold.execution(execution) if call.delivered}
    assert before and delivered and not before & delivered
