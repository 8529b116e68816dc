"""A run watched and ordered from outside: by its folder alone, over restarts, and with what does not belong there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gyre_hpc.report.watch.signs import SILENT_S, read_end
from tests.fakes.live_run import REPOSITORY, wait_dead
from tests.fakes.whole_run import REHEARSAL, WholeRun

RUN = (*REHEARSAL, "algo.updates=200", "engine.time_scale=4")
"""Far from its end when it is stopped."""
pytestmark = pytest.mark.timeout(240)


def gyre(*words: str, within_s: float = 90.0) -> subprocess.CompletedProcess[str]:
    program = "import sys; from gyre_hpc.cli.commands import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=within_s, cwd=REPOSITORY, check=False
    )


def unreachable(run: WholeRun) -> None:
    """As from a login node: no address leads anywhere."""
    run.wait_until(lambda: run.folder.start(1).exists() and run.folder.endpoints.exists(), "addresses")
    start = json.loads(run.folder.start(1).read_text())
    run.folder.start(1).write_text(json.dumps({**start, "url": "http://127.0.0.1:9"}))
    run.folder.endpoints.unlink()


@pytest.mark.parametrize("is_reachable", [True, False])
def test_a_run_is_stopped_through_its_folder_alone_and_by_http_where_that_is_to_be_had(tmp_path: Path, is_reachable: bool):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("process_registered")
        if not is_reachable:
            unreachable(run)
        below = run.processes()
        done = gyre("stop", str(run.folder.root), "--wait")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the run ends" in done.stdout and "exit code 130" in done.stdout
        assert done.stdout.endswith(f"go on with: python launch.py resume={run.folder.root}\n")
        assert is_reachable == (not [path for path in run.folder.commands.glob("*.json") if not path.name.endswith(".ack.json")])
        assert run.wait_end() == 130
        wait_dead(below, within_s=0)
        again = gyre("stop", str(run.folder.root))
        assert again.returncode == 0 and "nothing to stop" in again.stdout
        assert gyre("status", str(run.folder.root)).stdout.startswith("over: ")
        assert gyre("attach", str(run.folder.root)).returncode == 130


def test_garbage_is_answered_two_orders_at_once_are_one_end_and_the_next_attempt_heeds_neither(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("process_registered")
        run.folder.commands.mkdir(exist_ok=True)
        run.folder.command("garbage").write_bytes(b"\x00\xff{" * 99)
        run.wait_until(run.folder.answer("garbage").exists, "an answer to garbage")
        assert json.loads(run.folder.answer("garbage").read_text())["is_done"] is False
        for name in ("1-a", "2-b"):
            run.folder.command(name).write_text('{"kind": "stop", "attempt": 1}')
        assert run.wait_end() == 130
        assert all(json.loads(run.folder.answer(name).read_text())["is_done"] for name in ("1-a", "2-b"))
        run.folder.command("3-late").write_text('{"kind": "stop", "attempt": 1}')
    with WholeRun(tmp_path, f"resume={run.folder.root}") as again:
        again.wait_until(again.folder.answer("3-late").exists, "an answer of the next attempt")
        assert "meant for attempt 1" in json.loads(again.folder.answer("3-late").read_text())["text"]
        again.wait_event("process_registered", lambda event: event.attempt == 2)
        assert read_end(again.folder, 2) is None and again.process.poll() is None


def test_logs_are_followed_over_the_restart_of_a_process_and_end_with_the_run(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("call_ended")
        program = "import sys; from gyre_hpc.cli.commands import run; sys.exit(run(sys.argv[1:]))"
        out = tmp_path / "followed"
        with out.open("wb") as output:
            following = subprocess.Popen(
                [sys.executable, "-c", program, "logs", str(run.folder.root), "-f"], stdout=output, stderr=output, cwd=REPOSITORY
            )
        run.kill("controller", signal.SIGTERM)
        # Only then it hears of an end in order, and says so.
        run.wait_event("process_registered", lambda event: event.fields["process"] == "controller" and event.fields["incarnation"] == 2)
        run.wait_until(lambda: out.read_text().count("controller | ") >= 1, "the last words of the first controller")
        run.folder.log("late-0").write_text("a log that came later\n")
        run.wait_until(lambda: "late-0 | a log that came later" in out.read_text(), "a new log")
        assert gyre("stop", str(run.folder.root), "--wait").returncode == 0
        assert following.wait(30) == 0, out.read_text()
        assert out.read_text().count("controller ends") == run.folder.log("controller").read_text().count("controller ends") == 2


def test_stacks_of_a_cell_are_printed_also_again_and_of_a_stopped_process_it_is_said(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("call_ended")
        for _ in range(2):
            done = gyre("debug", str(run.folder.root), "--cell", "1", "--stacks")
            assert done.returncode == 0, done.stdout + done.stderr
            assert "logs/cell-1-1-1" in done.stdout and "most recent call first" in done.stdout
            assert done.stdout.count("Current thread") <= 1, "only what this order brought"
        pid = run.kill("runner-0", signal.SIGSTOP)
        done = gyre("debug", str(run.folder.root), "--process", "runner-0")
        os.kill(pid, signal.SIGCONT)
        assert done.returncode == 1 and "wrote nothing" in done.stdout


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="py-spy is not on PATH: pip install py-spy")
def test_py_spy_looks_into_a_process_that_answers_nothing(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("process_registered", lambda event: event.fields["process"] == "cell-1")
        for is_stopped in (False, True):
            if is_stopped:
                run.kill("cell-1", signal.SIGSTOP)
            done = gyre("debug", str(run.folder.root), "--cell", "1", "--py-spy")
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"=== cell-1 rank 0, process {run.pid('cell-1')}" in done.stdout
            assert "Thread" in done.stdout and "gyre_hpc/processes/cell.py" in done.stdout, "where its threads are"


def test_without_py_spy_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("process_registered", lambda event: event.fields["process"] == "cell-1")
        monkeypatch.setenv("PATH", "/usr/bin:/bin" if shutil.which("py-spy", path="/usr/bin:/bin") is None else str(tmp_path))
        done = gyre("debug", str(run.folder.root), "--cell", "1", "--py-spy")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "--py-spy" in done.stderr and "pip install py-spy" in done.stderr and "--stacks" in done.stderr


def test_a_held_cell_that_was_lost_comes_back_when_it_is_released(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("call_ended")
        assert gyre("debug", str(run.folder.root), "--cell", "2", "--hold").returncode == 0
        run.kill("cell-2")
        lost = run.wait_event("cell_lost", lambda event: event.fields["cell"] == "cell-2")

        def waits() -> list[str]:
            status = json.loads(gyre("status", str(run.folder.root), "--json").stdout)
            assert status["watch"]["state"] == "running"
            return [wait["reason"] for wait in status["waits"]]

        run.wait_until(lambda: any("cell-2" in reason and "held" in reason for reason in waits()), "a wait that says so")
        orders = run.wait_event("call_ended", lambda event: event.time > lost.time + 6.0)  # several orders to start it again
        assert not [
            event
            for event in run.events("process_started")
            if event.fields["process"] == "cell-2" and event.time < orders.time and event.time > lost.time
        ]
        assert gyre("debug", str(run.folder.root), "--cell", "2", "--release").returncode == 0
        run.wait_event("process_registered", lambda event: event.fields["process"] == "cell-2" and event.fields["incarnation"] == 2)


def test_a_run_that_was_killed_is_told_to_be_silent_within_its_time(tmp_path: Path):
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("call_ended")
        assert gyre("status", str(run.folder.root)).stdout.startswith("running: ")
        run.kill("supervisor")
        killed = time.time()
        run.wait_end()
        limit = killed + SILENT_S + 15.0
        while not (said := gyre("status", str(run.folder.root)).stdout).startswith("silent: "):
            assert time.time() < limit, said
            time.sleep(0.5)
        assert "no sign of life of attempt 1 for" in said
