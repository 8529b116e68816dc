"""Whole runs of launch.py with a real SGLang, on CPU, some of whose processes are killed: no token is lost, and nothing is left."""

import os
import signal
from pathlib import Path

import pytest

from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.observability.status import CellStatus, read_status
from gyre_hpc.protocol.to_batch import CellReport
from tests.fakes.live_faults import expect_sound, reports
from tests.fakes.live_run import wait_dead
from tests.fakes.sglang_here import sglang_config
from tests.fakes.whole_run import WholeRun
from tests.sglang.small_run import LONG_CALLS, START_S, TINY, with_sglang

pytestmark = [pytest.mark.timeout(1800), pytest.mark.rare]


def cell(run: WholeRun, name: str) -> CellStatus | None:
    status = read_status(run.folder.status)
    return None if status is None else next((one for one in status.cells if one.name == name), None)


def serves(run: WholeRun, name: str, num_calls: int) -> bool:
    seen = cell(run, name)
    return seen is not None and len(seen.engine_pids) > 2 and seen.state == "rollout" and seen.live >= num_calls


def scheduler_of(seen: CellStatus) -> int:
    """The process that computes: what the kernel takes first when memory runs out."""
    (pid,) = [rank.pid for rank, title in ranks_below(seen.engine_pids[0]).items() if "schedul" in title]
    return pid


def seen_of(run: WholeRun, name: str) -> dict[int, CellReport]:
    """By incarnation: its first report that shows its server."""
    return {report.incarnation: report for report in reversed(reports(run)) if report.cell == name and report.engine_pids}


def test_a_killed_cell_finds_its_server_again_and_a_killed_server_costs_no_token(tmp_path: Path):
    with WholeRun(tmp_path, *with_sglang(), *TINY, *LONG_CALLS, "algo.updates=6") as run:
        run.wait_until(lambda: serves(run, "cell-1", num_calls=1), "cell-1 serving", within_s=START_S)
        run.kill("cell-1")
        run.wait_event("process_registered", lambda event: event.fields == event.fields | {"process": "cell-1", "incarnation": 2})
        run.wait_until(lambda: serves(run, "cell-1", num_calls=2), "cell-1 serving again")
        seen = cell(run, "cell-1")
        assert seen is not None
        os.kill(scheduler_of(seen), signal.SIGKILL)
        assert run.wait_end(within_s=START_S) == 0, run.printed
        expect_sound(run, updates=6, lost=("cell-1",))
        before, after = (seen_of(run, "cell-1")[incarnation].engine_pids for incarnation in (1, 2))
        assert set(before) <= set(after), "its server was adopted"
        lost = [event.fields["reason"] for event in run.events("cell_lost") if event.fields["cell"] == "cell-1"]
        assert len(lost) == 2 and "lost its process sglang::schedul" in lost[1], lost
        assert {event.fields["cell"] for event in run.events("call_rerouted") if event.fields["why"] == "CellLost"} == {"cell-1"}


def test_a_run_whose_supervisor_is_killed_leaves_no_server(tmp_path: Path):
    with WholeRun(tmp_path, *with_sglang(), *TINY, *LONG_CALLS, "algo.updates=100") as run:
        run.wait_until(lambda: len(servers(run)) >= 2, "two servers starting", within_s=120)
        run.kill("supervisor")
        assert run.wait_end() != 0
        wait_dead(run.processes())


def servers(run: WholeRun) -> list[int]:
    """First processes of SGLang."""
    launcher = sglang_config().launcher.encode()
    return [pid for pid in run.processes() if launcher in arguments(pid)]


def arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
