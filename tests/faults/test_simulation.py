"""A few seeds of the simulation: the machines keep their promises under every kind of fault. (More: `gyre simtest`.)"""

import pytest

from gyre_hpc.simulation.simtest import describe, run_seed, trouble


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_every_promise_holds(first: int) -> None:
    for seed in range(first, first + 4):
        outcome = run_seed(seed)
        assert not trouble(outcome), describe(outcome)
