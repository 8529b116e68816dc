"""Every second of a cell is accounted for, once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.observability.events import Event
from gyre_hpc.observability.idle import idle_by_cell, idle_by_reason, intervals


def at(time: float, cell: str, state: str, reason: str = "") -> Event:
    return Event(time, time, "controller", 1, "cell_state", {"cell": cell, "state": state, "reason": reason, "term": 0})


def test_reasons_add_up_per_cell():
    events = [
        at(0, "cell-0", "starting", "starting"),
        at(1, "cell-1", "rollout"),
        at(3, "cell-0", "rollout"),
        at(5, "cell-0", "rollout", "no_executions"),
        at(6, "cell-0", "draining"),
        at(7, "cell-0", "train", "waits_for_groups"),
        at(9, "cell-0", "train"),
    ]
    stretches = intervals(events, 10)
    assert idle_by_reason(stretches) == {"starting": 3, "no_executions": 1, "switching": 1, "waits_for_groups": 2}
    assert idle_by_cell(stretches)["cell-0"] == {"starting": 3, "": 3, "no_executions": 1, "switching": 1, "waits_for_groups": 2}
    assert idle_by_cell(stretches)["cell-1"] == {"": 9}


def test_other_events_do_not_matter():
    other = Event(2, 2, "p", 1, "applied", {"update": 0})
    assert intervals([other], 5) == []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100),
            st.sampled_from(["cell-0", "cell-1"]),
            st.sampled_from(["rollout", "train", "lost", "switching"]),
            st.sampled_from(["", "x"]),
        ),
        max_size=30,
    )
)
def test_sums_are_the_whole_time_from_a_cells_first_event(facts: list[tuple[float, str, str, str]]):
    events = sorted((at(*fact) for fact in facts), key=lambda event: event.time)
    sums = idle_by_cell(intervals(events, 100.0))
    for cell in {event.fields["cell"] for event in events}:
        first = min(event.time for event in events if event.fields["cell"] == cell)
        assert sum(sums[cell].values()) == pytest.approx(100.0 - first)


def test_a_clock_that_steps_back_makes_no_negative_time():
    stretches = intervals([at(5, "cell-0", "rollout"), at(3, "cell-0", "train", "x")], 4)
    assert all(stretch.seconds >= 0 for stretch in stretches)
