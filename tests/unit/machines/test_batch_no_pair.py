"""The end of a run in which no pair of cells can serve any more."""

import pytest

from gyre_hpc.machines.batch.giving_up import watch_units
from gyre_hpc.protocol.identity import GroupId
from tests.unit.machines.test_batch_pairs import Bench


@pytest.mark.parametrize(("aside", "ends"), [(("cell-1", "cell-2"), True), (("cell-2", "cell-3"), False), (("cell-1",), False)])
def test_a_run_ends_once_every_pair_lacks_a_cell_for_good(aside: tuple[str, ...], ends: bool) -> None:
    bench = Bench()
    state = bench.made.state
    state.groups.live["train-0-0-0"] = GroupId("train", 0, 0)
    for name in aside:
        state.fleet.cells[name].aside = "3 failed starts"
    watch_units(state, bench.now)
    assert state.finished is ends
    assert not ends or (state.exit_code == 1 and all(f"{name} (3 failed starts)" in state.reason for name in aside))
