"""The ledger under random histories: an id is in one place, voiding gives back everything and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.machines.batch.ledger import EntryState, Ledger

CELLS = ("core", "a", "b")
steps = st.lists(
    st.tuples(st.sampled_from(("lease", "accumulate", "void", "hand_in")), st.sampled_from(CELLS), st.integers(0, 3)),
    max_size=60,
)


@given(size=st.integers(0, 12), history=steps)
def test_every_micro_batch_is_in_exactly_one_place(size: int, history: list[tuple[str, str, int]]) -> None:
    ledger = Ledger()
    for index in range(size):
        ledger.add(f"0:{index}", 10, 1)
    sums: dict[str, list[str]] = {cell: [] for cell in CELLS}
    for step, cell, number in history:
        if step == "lease":
            ledger.lease(cell, number)
        elif step == "accumulate":
            ids = [entry.id for entry in ledger.leased(cell)[:number]]
            sums[cell] += [entry.id for entry in ledger.accumulate(cell, ids)]
        elif step == "void":
            held = ledger.leased(cell) + ledger.accumulated(cell)
            before = len(ledger.waiting())
            assert ledger.void(cell) == len(held)
            assert len(ledger.waiting()) == before + len(held)
            sums[cell] = []
        elif cell != "core" and ledger.transfer(cell, "core", sums[cell]):
            sums["core"] += sums[cell]
            sums[cell] = []
        for name in CELLS:
            assert sorted(entry.id for entry in ledger.accumulated(name)) == sorted(sums[name])
    everything = [id for ids in sums.values() for id in ids]
    assert len(everything) == len(set(everything))
    assert ledger.is_accumulated() == (len(everything) == size)
    assert ledger.covers(sums.values()) == ledger.is_accumulated()


def test_a_manifest_with_a_doubled_or_missing_id_does_not_cover() -> None:
    ledger = Ledger()
    for id in ("0:0", "0:1"):
        ledger.add(id, 10, 1)
    assert ledger.covers([["0:0"], ["0:1"]])
    assert not ledger.covers([["0:0", "0:1"], ["0:1"]])
    assert not ledger.covers([["0:0"]])
    assert not ledger.covers([["0:0", "0:2"]])


def test_what_was_voided_cannot_be_reported_accumulated_any_more() -> None:
    ledger = Ledger()
    ledger.add("0:0", 10, 1)
    ledger.lease("a", 1)
    ledger.void("a")
    assert ledger.accumulate("a", ["0:0"]) == []
    assert ledger.waiting()[0].state is EntryState.ready
