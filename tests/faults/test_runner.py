"""A real runner with the real suite and harness; only the model is a script."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config, PathsConfig, SandboxConfig, SandboxKind
from gyre_hpc.protocol.to_batch import ScoreState
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.sandboxes import Bubblewrap
from gyre_hpc.suites import create_suite
from gyre_hpc.suites.base import Task
from tests.fakes.live_run import descendants, is_alive, wait_dead, wait_for
from tests.fakes.runner_stage import RunnerStage

A, B = "train-0-0-0", "train-0-0-1"


def config_at(root: Path, kind: SandboxKind = SandboxKind.auto) -> Config:
    return Config(paths=PathsConfig(scratch=str(root / "s")), sandbox=SandboxConfig(kind=kind))


def workspaces_of(config: Config, run: Path) -> Path:
    return scratch_folder(config, RunFolder(run)) / "runner-0-1"


def begin(execution: str, task: int, soft_s: float = 60.0, hard_s: float = 75.0) -> Begin:
    return Begin(execution, "train", task, soft_s, hard_s)


def join_task(config: Config) -> tuple[int, Task, str]:
    """A task without delegation that joins two files, and the command that solves it."""
    suite = create_suite(config.suite, config.seed)
    for index in range(500):
        task = suite.task("train", index)
        if task.family == "join" and " and " in task.instruction:
            words = task.instruction.rstrip(".").split()
            return index, task, f"cat {words[1]} {words[3]} > {words[5]}"
    raise AssertionError("no such task")


def num_answers(messages: list[dict[str, Any]]) -> int:
    return sum(message["role"] == "tool" for message in messages)


def say(*commands: str) -> Any:
    """A model that gives these commands one after the other, then stops."""

    def answer(execution: str, messages: list[dict[str, Any]]) -> str | None:
        return commands[num_answers(messages)] if num_answers(messages) < len(commands) else None

    return answer


@pytest.mark.parametrize("kind", [SandboxKind.none, SandboxKind.bwrap])
def test_a_solved_task_scores_one_and_leaves_no_workspace(tmp_path: Path, kind: SandboxKind):
    if kind is SandboxKind.bwrap and Bubblewrap().probe() and os.environ.get("GYRE_REQUIRE") != "all":
        pytest.skip("bwrap does not work here")
    config = config_at(tmp_path, kind)
    index, _, solution = join_task(config)
    with RunnerStage(tmp_path, config, say(solution)) as stage:
        stage.assign(begin(A, index), begin(B, index))
        for execution in (A, B):
            ended = stage.ended(execution)
            assert (ended.state, ended.score, ended.passed) == (ScoreState.scored, 1.0, True), ended
        assert stage.report is not None and stage.report.harness_cpu_s > 0 and not stage.refused
        wait_for(lambda: not list(workspaces_of(config, tmp_path).iterdir()), "removal of the workspaces")
        stage.assign(acked=(A, B))
        wait_for(lambda: stage.report is not None and not stage.report.ended, "acknowledgement")
        stage.end()
        notes = [json.loads(line) for line in stage.folder.events("runner-0", 1).read_text().splitlines()]
        (used,) = [note["fields"]["children_s"] for note in notes if note["kind"] == "cpu"]
        assert used >= stage.report.harness_cpu_s


def test_an_unsolved_task_scores_nothing_but_is_scored(tmp_path: Path):
    config = config_at(tmp_path)
    index, _, _ = join_task(config)
    with RunnerStage(tmp_path, config, say()) as stage:
        stage.assign(begin(A, index))
        ended = stage.ended(A)
        assert (ended.state, ended.score, ended.reason) == (ScoreState.scored, 0.0, "")


def test_at_the_soft_deadline_what_is_there_is_scored_as_partial(tmp_path: Path):
    config = config_at(tmp_path)
    index, _, solution = join_task(config)
    with RunnerStage(tmp_path, config, say(solution, "sleep 9")) as stage:
        stage.assign(begin(A, index, soft_s=2.0, hard_s=20.0))
        ended = stage.ended(A)
        assert (ended.state, ended.score, ended.reason) == (ScoreState.partial, 1.0, "soft deadline of 2 s")


def test_a_killed_harness_is_partial_with_the_score_of_what_it_left(tmp_path: Path):
    config = config_at(tmp_path, SandboxKind.none)
    index, _, solution = join_task(config)
    with RunnerStage(tmp_path, config, say(solution, "sleep 9")) as stage:
        stage.assign(begin(A, index))
        os.kill(harness_of(stage, "sleep 9"), signal.SIGKILL)
        ended = stage.ended(A)
        assert (ended.state, ended.score) == (ScoreState.partial, 1.0) and "killed by signal 9" in ended.reason


def harness_of(stage: RunnerStage, command: str) -> int:
    """pid of the agent program that runs `command` now."""
    found: list[int] = []

    def running() -> bool:
        for pid in descendants(stage.process.pid):
            if command.encode() in cmdline(pid).replace(b"\0", b" ") and b"shell_agent" not in cmdline(pid):
                found.extend(
                    other for other in descendants(stage.process.pid) if pid in descendants(other) and b"shell_agent" in cmdline(other)
                )
                return bool(found)
        return False

    wait_for(running, f"a harness that runs {command}")
    return found[-1]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_killed_keeper_leaves_nothing_running_and_the_execution_is_partial(tmp_path: Path):
    config = config_at(tmp_path, SandboxKind.none)
    index, _, solution = join_task(config)
    with RunnerStage(tmp_path, config, say(solution, "setsid sleep 500")) as stage:
        stage.assign(begin(A, index))
        harness = harness_of(stage, "sleep 500")
        below = {harness, *descendants(harness)}
        keeper = next(
            pid
            for pid in descendants(stage.process.pid)
            if harness in descendants(pid) and b"warden" in cmdline(pid) and pid != warden_of(stage)
        )
        os.kill(keeper, signal.SIGKILL)
        assert stage.ended(A).state is ScoreState.partial
        wait_dead(below)


def warden_of(stage: RunnerStage) -> int:
    return min(pid for pid in descendants(stage.process.pid) if b"gyre_hpc.processes.warden" in cmdline(pid))


def test_an_execution_that_is_no_longer_wanted_is_ended_without_a_report(tmp_path: Path):
    config = config_at(tmp_path)
    index, _, _ = join_task(config)
    with RunnerStage(tmp_path, config, say("sleep 9")) as stage:
        stage.assign(begin(A, index))
        below = {harness_of(stage, "sleep 9")}
        stage.assign()
        wait_dead(below)
        wait_for(lambda: stage.report is not None and not stage.report.running and stage.report.assignment == 2, "forgotten")
        assert stage.report is not None and not stage.report.ended


def test_a_killed_runner_takes_its_harnesses_along_and_tells_the_truth_after_its_restart(tmp_path: Path):
    config = config_at(tmp_path)
    index, _, solution = join_task(config)

    def answer(execution: str, messages: list[dict[str, Any]]) -> str | None:
        return say(solution)(execution, messages) if execution == A else "sleep 9"

    with RunnerStage(tmp_path, config, answer) as stage:
        stage.assign(begin(A, index), begin(B, index))
        first = stage.ended(A)
        below = descendants(stage.process.pid)
        assert any(is_alive(pid) for pid in below)
        stage.kill()
        stage.start()
        assert stage.ended(A) == first
        interrupted = stage.ended(B)
        assert (interrupted.state, interrupted.score, interrupted.reason) == (ScoreState.infra_error, None, "the runner died")
        assert not list(workspaces_of(config, tmp_path).iterdir()), "the old workspaces are swept away"


def test_a_killed_warden_ends_the_runner(tmp_path: Path):
    config = config_at(tmp_path)
    index, _, _ = join_task(config)
    with RunnerStage(tmp_path, config, say("sleep 9")) as stage:
        stage.assign(begin(A, index))
        harness = harness_of(stage, "sleep 9")
        os.kill(warden_of(stage), signal.SIGKILL)
        assert stage.process.wait(timeout=30) == 0
        wait_dead({harness})


def test_hostile_leavings_neither_hang_nor_fool_the_score(tmp_path: Path):
    config = config_at(tmp_path)
    index, task, _ = join_task(config)
    target = task.instruction.rstrip(".").split()[5]
    traps = f"mkfifo {target}; mkdir d; touch d/x; chmod 000 d; ln -s /etc/passwd p; ln -s / root"
    with RunnerStage(tmp_path, config, say(traps)) as stage:
        stage.assign(begin(A, index))
        ended = stage.ended(A)
        assert (ended.state, ended.score) == (ScoreState.scored, 0.0)
        wait_for(lambda: not list(workspaces_of(config, tmp_path).iterdir()), "removal of the workspace")
    assert Path("/etc/passwd").exists()
