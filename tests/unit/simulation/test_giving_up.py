"""A run may end without its updates for one reason only, and the ground truth must bear it out."""

import msgspec
import pytest

from gyre_hpc.simulation import controller_world, watch
from gyre_hpc.simulation.draw import draw
from gyre_hpc.simulation.run import Outcome, Simulation
from gyre_hpc.simulation.scenario import Fault, FaultKind
from gyre_hpc.simulation.simtest import main, trouble


def warm(*faults: Fault) -> Outcome:
    """A run with a warm start of its own."""
    return Simulation(msgspec.structs.replace(draw(0), warm=2, warm_cached=False, faults=faults)).run()


def no_replies() -> Outcome:
    """No answer ever reaches an agent."""
    return warm(*(Fault(kind=FaultKind.broken, target=f"gateway-{n}", on="Reply", nth=nth) for n in range(2) for nth in range(1, 200)))


def test_a_warm_start_of_which_nothing_was_delivered_ends_the_run_rightly() -> None:
    outcome = no_replies()
    assert outcome.violation == "" and outcome.counts["gave_up_rightly"] == 1 and outcome.sizes["updates"] == 0
    assert trouble(outcome) == "", "it has no size to be judged by"


def test_a_warm_start_that_is_said_to_be_empty_and_is_not_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_world, "prepare_warm_start", lambda calls, settings, version: ())
    assert "its execution is said to have left none" in warm().violation


def test_any_other_reason_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "NOTHING_TO_FIT", "another")
    assert "the run gives up" in no_replies().violation


def test_those_that_gave_up_are_told_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyre_hpc.simulation.simtest._all", lambda seeds, trace: iter([no_replies()]))
    assert main(seeds=1) == 0
    assert capsys.readouterr().out.startswith("simtest: 1 seeds, 0 failed, 1 gave up rightly\n")
