"""Records -> calls."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import (
    CallBegin,
    CallEnd,
    CallProgress,
    Delivered,
    ExecutionEnd,
    Forgotten,
    Record,
    Sampling,
    Stored,
    VersionSpan,
)
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.fold import DamagedCall, JournalFold

EXECUTION = "train-1-2-3"
CALL = f"{EXECUTION}/4"
OUTPUT = list(range(100, 140))
SWITCH = 25
"""Output position from which version 1 sampled."""


def begin(call: str = CALL) -> CallBegin:
    return CallBegin(call, EXECUTION, None, pack_ids([1, 2, 3]), "main", "", "root", Sampling(temperature=0.7), {}, "h", 0.0)


def piece(start: int, end: int, call: str = CALL) -> CallProgress:
    spans = [VersionSpan(Version(0, v), max(a, start), min(b, end)) for v, a, b in ((0, 0, SWITCH), (1, SWITCH, 40))]
    ids = OUTPUT[start:end]
    kept = tuple(span for span in spans if span.end > span.start)
    return CallProgress(call, start, pack_ids(ids), pack_floats([-i / 100 for i in ids]), kept, Version(0, 0), "cell-0", 0.0)


def end(num_output: int = len(OUTPUT), call: str = CALL) -> CallEnd:
    return CallEnd(call, "stop", num_output, 1, (), "d", ("cell-0",), 0, 0.0)


def folded(records: list[Record]) -> list[Call]:
    fold = JournalFold()
    for record in records:
        fold.add(record)
    return fold.execution(EXECUTION)


def assert_whole(call: Call) -> None:
    assert call.output_ids.tolist() == OUTPUT
    np.testing.assert_allclose(call.logprobs, [-i / 100 for i in OUTPUT], rtol=1e-6)
    assert call.spans == (VersionSpan(Version(0, 0), 0, SWITCH), VersionSpan(Version(0, 1), SWITCH, 40))
    assert call.oldest_kv == ((40, Version(0, 0)),)


@given(st.data())
def test_a_position_is_counted_once_however_pieces_overlap_and_repeat(data: st.DataObject) -> None:
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, 39)))), 40]
    pieces: list[Record] = [piece(a, b) for a, b in itertools.pairwise(cuts)]
    for a, b in data.draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)):
        pieces.append(piece(min(a, b), max(a, b)))
    records: list[Record] = [begin(), *pieces, end(), Delivered(CALL, 0.0)]
    records += data.draw(st.lists(st.sampled_from(records), max_size=4))
    random.Random(data.draw(st.integers(0, 999))).shuffle(records)
    (call,) = folded(records)
    assert_whole(call)
    assert (call.delivered, call.ordinal, call.temperature, call.malformed) == (True, 4, 0.7, 1)


def test_the_piece_journaled_first_wins() -> None:
    other = CallProgress(
        CALL, 10, pack_ids([9] * 30), pack_floats([-9.0] * 30), (VersionSpan(Version(0, 1), 10, 40),), Version(0, 1), "c", 0.0
    )
    (call,) = folded([begin(), piece(0, 30), other, end()])
    assert call.output_ids.tolist() == OUTPUT[:30] + [9] * 10
    assert call.spans[-1] == VersionSpan(Version(0, 1), SWITCH, 40)
    assert call.oldest_kv == ((30, Version(0, 0)), (40, Version(0, 1)))


def test_a_retry_that_goes_on_with_an_abandoned_call_is_one_call() -> None:
    """Fault A11: the client timed out and sent again; the journal then has two ends of one call."""
    (call,) = folded([begin(), piece(0, 20), end(20), begin(), piece(20, 40), end(40), Delivered(CALL, 0.0), end(20)])
    assert_whole(call)


def test_an_answer_that_never_reached_the_client_is_not_delivered() -> None:
    """Fault A11: recorded, but no Delivered record."""
    (call,) = folded([begin(), piece(0, 40), end()])
    assert not call.delivered


def test_a_call_whose_engine_saw_other_ids_is_not_trained_on() -> None:
    other = CallEnd(CALL, "stop", 40, 0, (), "d", ("cell-0",), 0, 0.0, engine_digest="e")
    (call,) = folded([begin(), piece(0, 40), other, Delivered(CALL, 0.0)])
    assert not call.delivered
    assert call.output_ids.tolist() == OUTPUT, "it stays the context of what follows"


def test_stored_answers_are_no_part_of_a_call() -> None:
    stored: list[Record] = [Stored(CALL, b"", b""), Forgotten(CALL, 0.0)]
    (call,) = folded([begin(), piece(0, 40), stored[0], end(), Delivered(CALL, 0.0), stored[1]])
    assert_whole(call)


def test_unfinished_calls_are_left_out_until_their_end() -> None:
    fold = JournalFold()
    for record in (begin(), piece(0, 40)):
        fold.add(record)
    assert fold.execution(EXECUTION) == []
    fold.add(end())
    assert len(fold.execution(EXECUTION)) == 1


def test_a_delivered_call_with_a_hole_is_refused() -> None:
    with pytest.raises(DamagedCall, match="40 output tokens, but 10"):
        folded([begin(), piece(0, 10), piece(20, 40), end(), Delivered(CALL, 0.0)])


def test_spans_that_do_not_cover_their_tokens_are_refused() -> None:
    bad = CallProgress(CALL, 0, pack_ids([1, 2]), pack_floats([0, 0]), (VersionSpan(Version(0, 0), 0, 1),), Version(0, 0), "c", 0.0)
    with pytest.raises(DamagedCall, match="spans"):
        folded([begin(), bad, end(2)])


def test_executions_are_kept_apart_and_can_be_forgotten() -> None:
    fold = JournalFold()
    for record in (begin(), end(0), ExecutionEnd(EXECUTION, 0.0), Delivered("train-9-9-9/0", 0.0)):
        fold.add(record)
    assert fold.executions() == [EXECUTION, "train-9-9-9"]
    assert (fold.has_ended(EXECUTION), fold.has_ended("train-9-9-9")) == (True, False)
    fold.forget(EXECUTION)
    assert (fold.execution(EXECUTION), fold.has_ended(EXECUTION)) == ([], False)
