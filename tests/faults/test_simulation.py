"""A few seeds of the simulation: the machines keep their promises under every kind of fault. (More: `gyre simtest`.)"""

import pytest

from gyre_hpc.simulation.simtest import describe, run_seed


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_every_promise_holds(first: int) -> None:
    for seed in range(first, first + 4):
        outcome = run_seed(seed)
        assert not outcome.violation, describe(outcome)
        assert outcome.events >= 500 and sum(outcome.faults.values()) >= 5
