"""Runs of the simulation, all faults at work, in which hardly any workspace can be made: no update of nothing, and an end with the reason."""

import random

import pytest

from gyre_hpc.machines.base import Effect
from gyre_hpc.machines.batch import consolidation, giving_up
from gyre_hpc.machines.batch.state import State
from gyre_hpc.machines.execution import PrepareWorkspace
from gyre_hpc.simulation import births
from gyre_hpc.simulation.draw import draw
from gyre_hpc.simulation.process import ActionFailed, Running
from gyre_hpc.simulation.run import Outcome, Simulation
from gyre_hpc.simulation.runner_world import RunnerWorld

SEEDS = range(60, 70)
NO_ROOM = "no room for a workspace"


def runs(monkeypatch: pytest.MonkeyPatch, share: float) -> list[Outcome]:
    """share: of the tries of training executions that fail before they begin."""

    def prepare(self: RunnerWorld, running: Running, action: PrepareWorkspace) -> None:
        execution = action.begin.execution
        self.sim.watch.begins(self.process, action.begin)

        def work() -> None:
            if execution.startswith("train") and random.Random(f"scarce {execution}").random() < share:
                raise ActionFailed("OSError", NO_ROOM)

        running.end_after(self.sim.kernel.short(0.05), work)

    monkeypatch.setattr(RunnerWorld, "_prepare", prepare)
    return [Simulation(draw(seed)).run() for seed in SEEDS]


def test_batches_of_nothing_are_begun_anew_until_all_updates_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    anew: list[int] = []

    def counted(state: State, now: float) -> list[Effect]:
        anew.append(state.update)
        return giving_up.begin_anew(state, now)

    monkeypatch.setattr(births, "FRUITLESS", 0)
    monkeypatch.setattr(births, "MOST_EMPTY", 10**6)
    monkeypatch.setattr(consolidation, "begin_anew", counted)
    outcomes = runs(monkeypatch, 0.93)
    assert [outcome.violation for outcome in outcomes] == [""] * len(SEEDS)
    assert len(anew) > len(SEEDS)


def test_where_none_can_be_made_each_run_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome in runs(monkeypatch, 1.0):
        assert outcome.violation.startswith("the run gives up:")
        assert "executions in a row" in outcome.violation or "times in a row" in outcome.violation
        assert NO_ROOM in outcome.violation and outcome.sizes["updates"] == 0
