"""A process that several cells share is killed in mid-run: they are all lost at once, start again, and nothing is lost with them."""

import signal
from pathlib import Path

import pytest

from tests.fakes.whole_run import REHEARSAL, WholeRun, unended

UPDATES, GROUPS, SIZE, CELLS = 3, 3, 4, 8
RUN = (*REHEARSAL, f"algo.updates={UPDATES}", "engine.time_scale=4", f"cluster.cells={CELLS}", "cluster.cells_per_process=4")
pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("victim", ["cells-0", "cells-1"])  # with the core, and without it
def test_a_run_outlives_the_kill_of_a_process_with_half_of_its_cells(tmp_path: Path, victim: str):
    with WholeRun(tmp_path, *RUN) as run:
        first = run.wait_event("applied").time
        run.wait_event("call_ended", lambda event: event.time > first)
        run.kill(victim)
        assert run.wait_end() == 0, run.printed
        number = int(victim.rpartition("-")[2])
        there = {f"cell-{4 * number + index}" for index in range(4)}
        killed = [event.fields["process"] for event in run.events("process_ended") if event.fields.get("code") == -signal.SIGKILL]
        assert set(killed) == there and len(killed) == len(there)
        again = {event.fields["process"] for event in run.events("process_registered") if event.fields["incarnation"] > 1}
        assert again == there
        consumed, summary = run.consumed(), run.summary()
        assert len(consumed) == len(set(consumed)) == UPDATES * GROUPS * SIZE
        assert (summary["updates"], summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (UPDATES, 0, 0)
        assert not unended(run.events()) and not run.half_written() and not run.processes()
