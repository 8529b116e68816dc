"""Shells add nothing: what the machines of a live run were told, fed to fresh machines, gives the same effects."""

from pathlib import Path

import pytest

from tests.fakes.fresh_machines import fresh, lives
from tests.fakes.whole_run import REHEARSAL, WholeRun

PROCESSES = ("controller", "gateway-0", "runner-0", "cell-0", "cell-1", "cell-2", "supervisor-0")


@pytest.mark.timeout(240)
def test_recorded_inputs_of_a_live_run_give_the_same_effects_again(tmp_path: Path):
    with WholeRun(tmp_path, *REHEARSAL, "algo.updates=3", "engine.time_scale=4", "debug.record_inputs=true") as run:
        run.wait_event("applied")
        for victim in ("controller", "gateway-0", "cell-1"):
            run.kill(victim)
        assert run.wait_end() == 0, run.printed
    for process in PROCESSES:
        recorded = list(lives(run.folder, process))
        assert len(recorded) == (2 if process in ("controller", "gateway-0", "cell-1") else 1), process
        for number, life in enumerate(recorded, start=1):
            machine = fresh(run.folder, process, life)
            assert len(life) > 3
            for index, (now, told, effects) in enumerate(life):
                assert machine.handle(now, told) == effects, f"{process}, life {number}, input {index}: {told}"
