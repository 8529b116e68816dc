"""What counts of an execution that several attempts recorded."""

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, Known, Record, Sampling, TakenUp, VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.lives import counting, last_life

EXECUTION = "train-1-2-3"
A, B = f"{EXECUTION}/0", f"{EXECUTION}/1"


def begin(call: str) -> CallBegin:
    return CallBegin(call, EXECUTION, None, pack_ids([1, 2]), "main", "", "root", Sampling(), {}, "h", 0.0)


def piece(call: str, start: int, end: int, mark: int = 0) -> CallProgress:
    """Tokens `mark` + their position."""
    ids = [mark + place for place in range(start, end)]
    span = VersionSpan(Version(0, 0), start, end)
    return CallProgress(call, start, pack_ids(ids), pack_floats([-1.0] * len(ids)), (span,), Version(0, 0), "cell-0", 0.0)


def end(call: str, num: int, finish: str = "stop") -> CallEnd:
    return CallEnd(call, finish, num, 0, (), "d", ("cell-0",), 0, 0.0)


def taken(life: int, attempts: tuple[int, ...], *known: Known) -> TakenUp:
    return TakenUp(EXECUTION, life, 0.0, attempts, known)


def output(records: list[Record], call: str) -> list[int]:
    fold = JournalFold()
    for record in [*records, end(call, 10**6, "abandoned")]:
        fold.add(record)
    found = {one.id: one for one in fold.execution(EXECUTION)}
    return found[call].output_ids.tolist() if call in found else []


@given(st.integers(0, 20), st.lists(st.integers(1, 20), max_size=3), st.integers(0, 6))
def test_what_an_older_attempt_writes_after_it_was_taken_up_counts_for_nothing(num_known: int, late: list[int], num_new: int) -> None:
    """However far the older process went on, with whatever tokens, the call is what the newer attempt knew and then sampled."""
    first: list[Record] = [begin(A), piece(A, 0, num_known, 100)] if num_known else [begin(A)]
    at = num_known
    for num in late:
        first += [piece(A, at, at + num, 900), end(A, at + num)]
        at += num
    first += [begin(B), piece(B, 0, 3)]
    second: list[Record] = [taken(1, (1,), Known(A, num_known))]
    if num_new:
        second.append(piece(A, num_known, num_known + num_new, 500))
    counted = counting({1: first, 2: second})
    assert output(counted, A) == [*range(100, 100 + num_known), *range(500 + num_known, 500 + num_known + num_new)]
    assert not [record for record in counted if not isinstance(record, TakenUp) and record.call == B]
    assert last_life(counted) == 1


def test_a_piece_that_reaches_beyond_what_was_known_is_cut() -> None:
    """Half of a record was known: the reader of the newer attempt had seen a torn tail, or an attempt between them cut it."""
    counted = counting({1: [begin(A), piece(A, 0, 8)], 2: [taken(1, (1,), Known(A, 5)), piece(A, 5, 9, 50)]})
    assert output(counted, A) == [0, 1, 2, 3, 4, 55, 56, 57, 58]
    cut = next(record for record in counted if isinstance(record, CallProgress))
    assert (cut.spans, len(cut.logprobs)) == ((VersionSpan(Version(0, 0), 0, 5),), 20)


def test_an_attempt_that_the_newest_one_did_not_know_counts_for_nothing() -> None:
    """Attempt 2 takes it up while attempt 3 has begun already: 3 went on from 1."""
    records = {
        1: [begin(A), piece(A, 0, 8)],
        2: [taken(1, (1,), Known(A, 4)), piece(A, 4, 30, 200), Delivered(A, 0.0, 1)],
        3: [taken(1, (1,), Known(A, 8)), piece(A, 8, 10, 300)],
    }
    assert output(counting(records), A) == [*range(8), 308, 309]


def test_attempts_that_follow_each_other_each_count_as_far_as_the_next_one_knew() -> None:
    records = {
        1: [begin(A), piece(A, 0, 8)],
        2: [taken(1, (1,), Known(A, 4)), piece(A, 4, 6, 200), begin(B), piece(B, 0, 3)],
        3: [taken(2, (1, 2), Known(A, 5), Known(B, 3)), piece(A, 5, 7, 300)],
    }
    counted = counting(records)
    assert (output(counted, A), output(counted, B)) == ([0, 1, 2, 3, 204, 305, 306], [0, 1, 2])
    assert last_life(counted) == 2


def test_an_end_counts_if_it_was_known() -> None:
    whole = [begin(A), piece(A, 0, 4), end(A, 4)]
    for known, count in ((Known(A, 4, "stop"), 1), (Known(A, 4), 0), (Known(A, 2, "abandoned"), 0)):
        counted = counting({1: whole, 2: [taken(1, (1,), known)]})
        assert sum(isinstance(record, CallEnd) for record in counted) == count


def test_only_what_the_last_life_delivered_is_delivered() -> None:
    """What a divergence left behind was delivered to a process that is gone: it did not lead to the result."""
    fold = JournalFold()
    for record in (begin(A), piece(A, 0, 4), end(A, 4), Delivered(A, 0.0), begin(B), piece(B, 0, 4), end(B, 4), Delivered(B, 0.0)):
        fold.add(record, 1)
    assert [call.delivered for call in fold.execution(EXECUTION)] == [True, True]
    for later in (taken(1, (1,), Known(A, 4, "stop"), Known(B, 4, "stop")), Delivered(A, 1.0, 1)):
        fold.add(later, 2)
    assert [(call.id, call.delivered) for call in fold.execution(EXECUTION)] == [(A, True), (B, False)]
