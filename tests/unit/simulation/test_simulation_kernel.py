"""The simulation's own rules: same seed, same run; what dies stays dead; what was durable stays."""

import os
import subprocess
import sys

import msgspec
import pytest

from gyre_hpc.machines.base import Effect, Failed, Finished, Input, Machine, Persist, Persisted, Restarted, SetTimer, Start, TimerFired
from gyre_hpc.simulation.draw import draw
from gyre_hpc.simulation.kernel import Kernel, Violation
from gyre_hpc.simulation.process import Process, Running
from gyre_hpc.simulation.run import Simulation
from gyre_hpc.simulation.scenario import FaultKind, Scenario, decode, encode
from gyre_hpc.simulation.simtest import MINIMA, describe, main, run_seed


class Listener(Machine):
    """Answers its first input with `effects`, remembers everything."""

    def __init__(self, *effects: Effect) -> None:
        self.heard: list[Input] = []
        self._effects = list(effects)

    def handle(self, now: float, input: Input) -> list[Effect]:
        self.heard.append(input)
        effects, self._effects = self._effects, []
        return effects


class Wait(msgspec.Struct, frozen=True):
    seconds: float


def process(*effects: Effect) -> tuple[Simulation, Process, Listener]:
    sim = Simulation(Scenario(seed=1))
    one = Process(sim, "runner-0", 1, 1)
    listener = Listener(*effects)
    one.machine = listener

    def wait(running: Running, action: Wait) -> None:
        running.end_after(action.seconds, lambda: "done")

    one.handlers = {Wait: wait}
    one.tell(Restarted())
    return sim, one, listener


def run(sim: Simulation, seconds: float) -> None:
    sim.kernel.at(seconds, lambda: setattr(sim, "ended", (0, "")))
    sim.kernel.run(lambda: sim.ended is not None, 1e9, 10**9)
    sim.ended = None


def test_equal_times_keep_their_order() -> None:
    kernel, seen = Kernel(0), []
    for number in range(5):
        kernel.at(1.0, lambda number=number: seen.append(number))
    kernel.run(lambda: len(seen) == 5, 10, 10)
    assert seen == [0, 1, 2, 3, 4] and kernel.now == 1.0


def test_nothing_left_to_happen_is_a_violation() -> None:
    with pytest.raises(Violation, match="nothing is scheduled"):
        Kernel(0).run(lambda: False, 10, 10)


def test_every_start_ends_once() -> None:
    sim, one, listener = process(Start("a", Wait(0.1)), Start("b", Wait(0.2)))
    run(sim, 1.0)
    assert listener.heard[1:] == [Finished("a", "done"), Finished("b", "done")] and not one.actions


def test_a_crash_takes_timers_and_actions_with_it() -> None:
    sim, one, listener = process(Start("a", Wait(0.5)), SetTimer("t", 0.5))
    sim.kernel.at(0.2, one.die)
    run(sim, 1.0)
    assert listener.heard == [Restarted()]


def test_a_paused_process_catches_up() -> None:
    sim, one, listener = process(Start("a", Wait(0.5)), SetTimer("t", 0.4))
    one.paused = True
    sim.kernel.at(2.0, one.resume)
    run(sim, 1.0)
    assert listener.heard == [Restarted()]
    run(sim, 2.0)
    assert listener.heard[1:] == [TimerFired("t"), Finished("a", "done")]


def test_records_become_durable_in_order_or_not_at_all() -> None:
    sim, one, listener = process(*(Persist(f"k{number}", number) for number in range(3)))
    sim.disk.full_until["runner-0"] = 0.5
    run(sim, 1.0)
    assert [type(told) for told in listener.heard[1:]] == [Failed] * 3 and one.log == []
    sim, one, listener = process(*(Persist(f"k{number}", number) for number in range(3)))
    run(sim, 1.0)
    assert listener.heard[1:] == [Persisted(f"k{number}") for number in range(3)] and one.log == [0, 1, 2]


def test_a_crash_in_a_write_leaves_a_beginning_of_it() -> None:
    left = set()
    for seed in range(30):
        sim, one, _ = process(*(Persist(f"k{number}", number) for number in range(3)))
        sim.kernel.rng.seed(seed)
        one.die()
        assert one.log == list(range(len(one.log)))
        left.add(len(one.log))
    assert len(left) > 1


def test_a_scenario_is_a_value_that_can_be_kept() -> None:
    for seed in range(20):
        scenario = draw(seed)
        assert decode(encode(scenario)) == scenario == draw(seed)


def test_some_scenarios_have_their_cells_in_pairs() -> None:
    drawn = [draw(seed) for seed in range(200)]
    paired = [scenario for scenario in drawn if scenario.pairs]
    assert 0.05 * len(drawn) < len(paired) < 0.35 * len(drawn)
    for scenario in paired:
        assert scenario.kv == "pd" and len(scenario.pair_names) * 2 == scenario.cells
        assert "in pairs" in str(scenario)
    assert all(scenario.pair_names == () for scenario in drawn if not scenario.pairs)


def test_every_scenario_has_the_size_it_must_have() -> None:
    kinds = set()
    for seed in range(300):
        scenario = draw(seed)
        assert scenario.cells >= 4 and scenario.gateways >= 2 and scenario.updates >= 3
        assert scenario.updates * scenario.groups_per_batch * scenario.group_size >= 8
        assert sum(not fault.on for fault in scenario.faults) >= 10
        kinds |= {fault.kind for fault in scenario.faults}
    assert kinds == set(FaultKind)


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = run_seed(3), run_seed(3)
    assert (one.fingerprint, one.events, one.counts) == (other.fingerprint, other.events, other.counts)


def test_a_run_does_not_depend_on_the_order_of_sets() -> None:
    code = "from gyre_hpc.simulation.simtest import run_seed; print([run_seed(s).fingerprint for s in (1, 2)])"
    prints = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": hashing}, capture_output=True, text=True, check=True
        ).stdout
        for hashing in ("1", "2")
    }
    assert len(prints) == 1


def test_a_run_without_faults_makes_its_updates() -> None:
    scenario = msgspec.structs.replace(draw(0), faults=())
    outcome = Simulation(scenario).run()
    assert not outcome.violation and outcome.counts["applies"] == scenario.updates


def test_a_failing_seed_prints_its_schedule_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gyre_hpc.simulation.run.LIMIT_EVENTS", 200)
    assert main(seeds=1, first=5) == 1
    shown = capsys.readouterr().out
    assert all(str(fault) in shown for fault in draw(5).faults)
    assert "gyre simtest --seed 5" in shown and "not over after 200 events" in shown


def test_a_seed_that_is_too_small_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MINIMA, "updates", 4)
    assert main(seeds=1, first=1) == 1
    shown = capsys.readouterr().out
    assert "FAILED: the seed is too small: 3 updates, not 4" in shown and "simtest: 1 seeds, 1 failed" in shown


def test_what_messages_suffer_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(seeds=2, first=1) == 0
    shown = capsys.readouterr().out
    assert all(f"message {what}" in shown for what in ("lost", "doubled", "delayed", "overtaken")) and "fewest of a seed: " in shown


def test_a_good_seed_says_little(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(seeds=1, first=1) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("simtest: 1 seeds, 0 failed\n") and "updates" in shown
    assert describe(run_seed(1)).count("FAILED") == 0
