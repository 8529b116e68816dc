"""The controller's reader of the journal: the same calls as from a fold of all records, whatever was looked at before."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.control.journal_tail import JournalTail
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, ExecutionEnd, Record, Sampling, TakenUp, VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.segment import frame, header
from tests.fakes.journal_segments import spoil, write

EXECUTIONS = tuple(f"train-0-0-{index}" for index in range(3))


def life(execution: str, num_calls: int = 2) -> list[Record]:
    """All that an execution says."""
    records: list[Record] = []
    for number in range(num_calls):
        call, span = f"{execution}/{number}", (VersionSpan(Version(0, 0), 0, 3),)
        parent = f"{execution}/{number - 1}" if number else None
        records += [
            CallBegin(call, execution, parent, pack_ids([number]), "main", "", "", Sampling(), {}, "h", 1.0),
            CallProgress(call, 0, pack_ids([7, 8, number]), pack_floats([-0.5] * 3), span, Version(0, 0), "cell-0", 2.0),
            CallEnd(call, "stop", 3, 0, (), "d", ("cell-0",), 0, 3.0),
            Delivered(call, 4.0),
        ]
    return [*records, ExecutionEnd(execution, 5.0)]


def mixed(seed: int) -> list[Record]:
    """Several executions, each in its own order."""
    dice, left = random.Random(seed), [life(execution) for execution in EXECUTIONS]
    records: list[Record] = []
    while any(left):
        records.append(dice.choice([one for one in left if one]).pop(0))
    return records


def names(calls: list[object]) -> list[str]:
    return [str(call) for call in calls]


@given(st.integers(0, 99), st.lists(st.integers(0, 2000), max_size=4))
def test_calls_are_those_of_all_records_however_the_segment_grew(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    records = mixed(seed)
    data, fold, tail = header() + b"".join(map(frame, records)), JournalFold(), JournalTail(folder)
    for record in records:
        fold.add(record)
    for size in [*sorted(cuts), len(data)]:
        (folder / "gateway-0-1-000000.gyj").write_bytes(data[:size])
        tail.poll()
    for execution in EXECUTIONS:
        assert names(list(tail.calls(execution))) == names(list(fold.execution(execution)))
        assert tail.has_ended(execution) and tail.has_calls(execution)


def test_a_finished_segment_that_nobody_asks_about_is_not_read(tmp_path: Path) -> None:
    (first,) = write(tmp_path, *life(EXECUTIONS[0]), attempt=1)
    write(tmp_path, *life(EXECUTIONS[1]), attempt=2)
    whole = first.read_bytes()
    spoil(first)
    tail = JournalTail(tmp_path)
    tail.poll()
    assert tail.has_ended(EXECUTIONS[0]) and len(tail.calls(EXECUTIONS[1])) == 2
    first.write_bytes(whole)
    assert len(tail.calls(EXECUTIONS[0])) == 2


def test_a_later_attempt_takes_back_that_an_execution_has_ended(tmp_path: Path) -> None:
    write(tmp_path, *life(EXECUTIONS[0]), attempt=1)
    write(tmp_path, TakenUp(EXECUTIONS[0], 1, 9.0), attempt=2)
    tail = JournalTail(tmp_path)
    tail.poll()
    assert tail.has_calls(EXECUTIONS[0]) and not tail.has_ended(EXECUTIONS[0])
    assert tail.calls(EXECUTIONS[0]) == [], "the newer attempt knew none of them"


def test_nothing_is_held_of_what_was_forgotten_or_is_never_trained_on(tmp_path: Path) -> None:
    write(tmp_path, *life("eval-0-0-0"), *life(EXECUTIONS[0]), attempt=1)
    write(tmp_path, *life("eval-0-1-0"), *life(EXECUTIONS[1]), attempt=2, is_killed=True)
    tail = JournalTail(tmp_path)
    tail.poll()
    assert tail.num_held == 2
    for execution in EXECUTIONS[:2]:
        tail.calls(execution)
        tail.forget(execution)
    tail.poll()
    assert tail.num_held == 0 and tail.calls(EXECUTIONS[0]) == []
