"""A live supervisor with stand-in children: deaths, orders, orderly and violent ends."""

import itertools
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from gyre_hpc.config.place import above_scratch
from gyre_hpc.config.schema import ClusterConfig, Config, EngineConfig, EngineKind, TrainerConfig, TrainerKind
from gyre_hpc.machines.supervision import SUPERSEDED
from gyre_hpc.observability.events import read_events
from gyre_hpc.protocol.supervision import FinishRun, RestartCell, SetAside
from gyre_hpc.supervisor.attempts import end_of
from gyre_hpc.supervisor.log_files import KEPT
from tests.fakes import small_logs
from tests.fakes.live_run import REPOSITORY, LiveRun, descendants, is_alive, wait_dead, wait_for
from tests.fakes.small_logs.sitecustomize import LARGEST


def quick_config(**cluster: object) -> Config:
    """One cell without torch."""
    return Config(
        cluster=ClusterConfig(cells=1, **cluster),  # type: ignore[arg-type]
        engine=EngineConfig(kind=EngineKind.timed),
        trainer=TrainerConfig(kind=TrainerKind.timed),
    )


def test_killing_the_supervisor_leaves_no_process_and_no_half_written_file(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        pids = descendants(run.process.pid)
        assert len(pids) == 4
        os.kill(run.process.pid, signal.SIGKILL)
        wait_dead(pids)
        assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_in_order(tmp_path: Path, sig: signal.Signals):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        pids = descendants(run.process.pid)
        run.process.send_signal(sig)
        assert run.process.wait(timeout=40) == 130
        wait_dead(pids)
        assert json.loads(end_of(run.folder, 1).read_text())["reason"] == sig.name
        assert not place_of(run).exists(), "nobody else may be left who would remove it: its launcher was killed"


def place_of(run: LiveRun) -> Path:
    """Its scratch folder, which is not made by asking."""
    return above_scratch(Config()) / f"gyre-{os.getuid()}-{run.folder.root.stat().st_ino:x}"


def test_an_end_that_cannot_be_written_is_an_end_all_the_same(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        end_of(run.folder, 1).mkdir(parents=True)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(timeout=40) == 130


def test_a_closed_pipe_ends_the_run(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        assert run.process.stdin is not None
        run.process.stdin.close()
        assert run.process.wait(timeout=40) == 130


def test_a_killed_gateway_comes_back_under_its_name_with_the_next_incarnation(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        before = run.wait_registered()
        os.kill(run.pid("gateway-0"), signal.SIGKILL)
        wait_for(lambda: run.entries()["gateway-0"].incarnation == 2 and run.entries()["gateway-0"].url, "restart of gateway-0")
        after = run.entries()
        assert after["runner-0"] == before["runner-0"] and after["gateway-0"].url != before["gateway-0"].url


def test_a_lost_cell_waits_for_the_controllers_order(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        os.kill(run.pid("cell-0"), signal.SIGKILL)
        wait_for(lambda: run.entries()["cell-0"].lost, "loss of cell-0")
        assert run.entries()["cell-0"].lost == "killed by signal 9"
        assert run.post(RestartCell("cell-0", 1, "x"), token="wrong") == 401
        assert run.post(RestartCell("cell-0", 1, "x")) == 204
        wait_for(lambda: run.entries()["cell-0"].incarnation == 2 and run.entries()["cell-0"].url, "restart of cell-0")
        assert run.post(SetAside("cell-0", "tested")) == 204
        wait_for(lambda: run.entries()["cell-0"].lost == "set aside: tested" and "cell-0" not in names_of(run), "cell-0 set aside")


def names_of(run: LiveRun) -> set[str]:
    found = set()
    for pid in descendants(run.process.pid):
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--name" in argv:
            found.add(argv[argv.index(b"--name") + 1].decode())
    return found


@pytest.mark.parametrize("name", ["runner-0", "cell-0"])
def test_a_process_that_stood_still_too_long_leaves_its_stacks(tmp_path: Path, name: str):
    (tmp_path / f"stuck-{name}").touch()
    with LiveRun(tmp_path, quick_config(start_deadline_s=4)) as run:
        wait_for(lambda: run.folder.stacks(name, 1, 1, None if name == "runner-0" else 0).exists(), "a process that listens")
        wait_for(lambda: asked(run, name), "a question for stacks")
        (pattern,) = asked(run, name)
        wait_for(lambda: any("in stands_still" in path.read_text() for path in tmp_path.glob(pattern)), "stacks")
        written = {path for path in (tmp_path / "logs").glob("*.stacks") if path.stat().st_size}
        assert written <= {path for other in ("", *run.entries()) for pattern in asked(run, other) for path in tmp_path.glob(pattern)}, (
            "of those alone who were late"
        )


def asked(run: LiveRun, name: str) -> list[str]:
    """Files of the first life of `name`."""
    events = read_events(run.folder.events_folder)
    return [e.fields["files"] for e in events if e.kind == "stacks_asked" and (e.fields["process"], e.fields["incarnation"]) == (name, 1)]


def test_the_controllers_exit_code_is_the_runs(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        assert run.post(FinishRun(7, "tested")) == 204
        assert run.process.wait(timeout=40) == 7


def test_a_child_that_refuses_its_configuration_ends_the_run_with_its_code(tmp_path: Path):
    (tmp_path / "refuse-runner-0").write_text("2")
    with LiveRun(tmp_path, quick_config()) as run:
        assert run.process.wait(timeout=40) == 2
        assert "runner-0 refused its configuration" in json.loads(end_of(run.folder, 1).read_text())["reason"]


def test_a_stale_attempt_ends_itself(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        (run.folder.attempts / "2").mkdir()
        assert run.process.wait(timeout=40) == SUPERSEDED


def test_a_message_of_a_newer_attempt_ends_this_one_and_an_older_is_refused(tmp_path: Path):
    with LiveRun(tmp_path, quick_config(), attempt=5) as run:
        run.wait_registered()
        pids = descendants(run.process.pid)
        assert run.post(FinishRun(0, "old"), attempt=4) == 409
        assert run.post(FinishRun(0, "new"), attempt=6) == 503
        assert run.process.wait(timeout=40) == SUPERSEDED
        wait_dead(pids)


def test_a_stopped_process_that_ignores_sigterm_is_killed(tmp_path: Path):
    (tmp_path / "stubborn-runner-0").touch()
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        stubborn = run.pid("runner-0")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(timeout=60) == 130
        assert not is_alive(stubborn)


def test_the_mirrored_directory_is_for_its_owner_only(tmp_path: Path):
    with LiveRun(tmp_path, quick_config()) as run:
        run.wait_registered()
        assert stat.S_IMODE(run.folder.endpoints.stat().st_mode) == 0o600


def test_logs_of_a_live_run_stay_within_their_bound_and_keep_the_newest_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    num_lines = 4000
    (tmp_path / "chatty-runner-0").write_text(f"{num_lines} {2 * LARGEST}")
    paths = [str(Path(small_logs.__path__[0])), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with LiveRun(tmp_path, quick_config()) as run:
        log = run.folder.log("runner-0")
        wait_for((tmp_path / "said-runner-0").exists, "everything is said")
        wait_for(lambda: log.stat().st_size <= LARGEST, "the last cut")
        files = sorted(log.parent.glob("runner-0.log*"), key=lambda path: path.name, reverse=True)
        said = [int(line.split()[1]) for path in files for line in path.read_text().splitlines() if line.startswith("line ")]
        assert run.process.poll() is None
    assert len(files) == 1 + KEPT, "and no more"
    assert all(path.stat().st_size < 2.1 * LARGEST for path in files)
    assert said[-1] == num_lines - 1 and said == sorted(said)
    assert said[0] > 0, "the oldest are gone"
    holes = sum(later != earlier + 1 for earlier, later in itertools.pairwise(said))
    assert holes <= len(files), "at most what was written while a copy became a cut"
