"""The launcher's life and death: what it starts never outlives it, and a run can be gone on with."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.config.stored import load_config, store_config
from gyre_hpc.shell.lifetime import PARENT_PID
from gyre_hpc.supervisor.attempts import end_of
from tests.fakes.live_run import REPOSITORY, descendants, wait_dead, wait_for
from tests.faults.test_supervisor import quick_config


class Launched:
    """launch.local.main in a process of its own. Use as a context manager."""

    def __init__(self, root: Path, resume: bool = False, output: int | None = None) -> None:
        config = quick_config()
        config.paths = PathsConfig(run=str(root / "run"), scratch=str(root / "s"))
        config.resume = str(root / "run") if resume else ""
        self.folder = RunFolder(root / "run")
        store_config(config, root / "given.yaml")
        self.out = root / "out"
        with open(self.out, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.launch_standins", str(root / "given.yaml")],
                cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=file if output is None else output, stderr=file if output is None else output,
                env={name: value for name, value in os.environ.items() if name != PARENT_PID},
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        wait_dead(below)

    def wait_running(self) -> set[int]:
        """Until everything has registered; all pids below the launcher."""

        def registered() -> bool:
            assert self.process.poll() is None, self.out.read_text()
            if not self.folder.endpoints.exists():
                return False
            entries = json.loads(self.folder.endpoints.read_text())["entries"]
            return all(entry["url"] for entry in entries)

        wait_for(registered, "registration of all")
        return descendants(self.process.pid)


def test_killing_the_launcher_leaves_no_process(tmp_path: Path):
    with Launched(tmp_path) as launched:
        below = launched.wait_running()
        assert len(below) == 5
        os.kill(launched.process.pid, signal.SIGKILL)
        wait_dead(below)
        assert json.loads(end_of(launched.folder, 1).read_text())["exit_code"] == 130


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_ends_in_order_and_says_how_to_go_on(tmp_path: Path, sig: signal.Signals):
    with Launched(tmp_path) as launched:
        below = launched.wait_running()
        launched.process.send_signal(sig)
        assert launched.process.wait(timeout=110) == 130, launched.out.read_text()
        wait_dead(below)
        assert launched.out.read_text().splitlines()[-1] == f"run stopped; go on with: python launch.py resume={launched.folder.root}"
        assert not scratch_left(tmp_path)


def test_a_run_stopped_before_its_supervisor_is_up_is_stopped_not_failed(tmp_path: Path):
    with Launched(tmp_path) as launched:
        wait_for(lambda: any(is_supervisor(pid) for pid in descendants(launched.process.pid)), "start of the supervisor")
        launched.process.send_signal(signal.SIGTERM)
        assert launched.process.wait(timeout=110) == 130, launched.out.read_text()
        assert "run stopped; go on with" in launched.out.read_text()


def is_supervisor(pid: int) -> bool:
    """The launcher has other children before: it tries the sandbox."""
    try:
        return b"gyre_hpc.processes.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def scratch_left(root: Path) -> list[Path]:
    return list((root / "s").iterdir()) if (root / "s").exists() else []


def test_a_failed_run_names_the_reason_and_its_logs(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "refuse-gateway-0").write_text("2")
    with Launched(tmp_path) as launched:
        assert launched.process.wait(timeout=110) == 2
        assert "run failed: gateway-0 refused its configuration" in launched.out.read_text()


def test_a_resumed_run_is_the_next_attempt_in_the_same_folder_and_ends_the_older_one(tmp_path: Path):
    with Launched(tmp_path) as first:
        first.wait_running()
        token = first.folder.token.read_text()
        with Launched(tmp_path, resume=True) as second:
            assert first.process.wait(timeout=110) == 75, "a newer attempt lives"
            wait_for(lambda: (first.folder.attempts / "2").exists(), "second attempt")
            wait_for(lambda: second.folder.events("supervisor-0", 2).exists(), "events of the second attempt")
        assert first.folder.token.read_text() == token
        stored = load_config(first.folder.config)
        assert stored.resume == "" and stored.paths.run == str(first.folder.root)


def test_the_token_is_for_its_owner_and_nowhere_else_in_the_folder(tmp_path: Path):
    with Launched(tmp_path) as launched:
        launched.wait_running()
        token = launched.folder.token
        assert stat.S_IMODE(token.stat().st_mode) == 0o600 and len(token.read_text()) == 64
        others = [path for path in launched.folder.root.rglob("*") if path.is_file() and path != token]
        assert others and not [path for path in others if token.read_text().encode() in path.read_bytes()]


def test_a_launch_into_a_used_folder_is_refused(tmp_path: Path):
    folder = tmp_path / "run"
    store_config(Config(), folder / "config.yaml")
    with Launched(tmp_path) as launched:
        assert launched.process.wait(timeout=110) != 0
        assert "holds a run already" in launched.out.read_text()


def test_scratch_folders_of_two_runs_differ(tmp_path: Path):
    folders = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        folders.append(scratch_folder(Config(paths=PathsConfig(scratch=str(tmp_path / "s"))), RunFolder(tmp_path / name)))
    assert folders[0] != folders[1]


def test_a_run_goes_on_when_nobody_reads_its_output_and_ends_in_order_with_its_terminal(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    with Launched(tmp_path, output=writing) as launched:
        os.close(writing)
        below = launched.wait_running()
        launched.process.send_signal(signal.SIGHUP)
        assert launched.process.wait(timeout=110) == 130
        wait_dead(below)
        assert launched.folder.summary.exists() and json.loads(end_of(launched.folder, 1).read_text())["exit_code"] == 130


def test_a_failed_run_repeats_what_the_process_said_last(tmp_path: Path):
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "run" / "refuse-gateway-0").write_text("2")
    (tmp_path / "run" / "logs" / "gateway-0.log").write_text("first\nfield=3: write 4\n")
    with Launched(tmp_path) as launched:
        assert launched.process.wait(timeout=110) == 2
        assert launched.out.read_text().splitlines()[-1] == "  field=3: write 4"
