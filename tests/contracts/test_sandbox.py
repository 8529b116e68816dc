"""Every kind of sandbox, run by the warden as in a run: what it must let through and what it must stop."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.schema import SandboxKind
from gyre_hpc.errors import UserError
from gyre_hpc.runner.harnesses import Harnesses
from gyre_hpc.runner.warden.wire import Ended, Run
from gyre_hpc.sandboxes import Bubblewrap, Limits, NoSandbox, Plan, Sandbox, create_sandbox
from tests.fakes.live_run import is_alive, wait_for

PYTHON = str(Path(sys.base_prefix).resolve() / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


@pytest.fixture(params=["none", "bwrap"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "none":
        return NoSandbox()
    reason = Bubblewrap().probe()
    if reason and os.environ.get("GYRE_REQUIRE") != "all":
        pytest.skip(f"bwrap does not work here: {reason}")
    assert not reason
    return Bubblewrap()


def needs_isolation(sandbox: Sandbox) -> None:
    if not sandbox.isolates:
        pytest.skip("kind none hides nothing: docs/security.md")


def request_of(sandbox: Sandbox, workspace: Path, *argv: str, limits: Limits, environment: dict[str, str] | None = None) -> Run:
    plan = Plan(
        argv=argv,
        workspace=workspace,
        environment={"PATH": "/usr/bin:/bin", **(environment or {})},
        readable=(Path(sys.base_prefix).resolve(),),
        limits=limits,
    )
    return run_of(sandbox, plan)


def run_of(sandbox: Sandbox, plan: Plan) -> Run:
    limits = plan.limits
    return Run(
        id="test", argv=sandbox.wrap(plan), environment=plan.environment, folder=str(plan.workspace), memory_mb=limits.memory_mb,
        address_space_mb=limits.address_space_mb, max_processes=limits.max_processes + sandbox.num_processes, disk_mb=limits.disk_mb,
        cpu_s=limits.cpu_s, depth=sandbox.num_processes,
    )  # fmt: skip


async def run_once(run: Run, halt_when: Path | None = None, force: bool = True) -> Ended:
    harnesses = Harnesses()
    await harnesses.start(died=lambda reason: None)
    try:
        task = asyncio.ensure_future(harnesses.run(run))
        if halt_when is not None:
            await asyncio.to_thread(wait_for, halt_when.exists, f"{halt_when}")
            await harnesses.halt(run.id, force=force)
        return await task
    finally:
        await harnesses.close()


def shell(sandbox: Sandbox, workspace: Path, script: str, **given: object) -> Ended:
    limits = given.pop("limits", Limits())
    assert isinstance(limits, Limits)
    run = request_of(sandbox, workspace, "/bin/sh", "-c", script, limits=limits, environment=given.pop("environment", None))  # type: ignore[arg-type]
    return asyncio.run(run_once(run, **given))  # type: ignore[arg-type]


def test_it_works_in_its_workspace_with_the_environment_it_was_given_and_no_more(sandbox: Sandbox, tmp_path: Path):
    ended = (
        shell(sandbox, tmp_path, "cat in > out; env | sort; exit 5", environment={"KEY": "value"})
        if (tmp_path / "in").write_text("x")
        else None
    )
    assert ended is not None and (ended.code, ended.started, ended.limit) == (5, True, "")
    assert (tmp_path / "out").read_text() == "x"
    names = {line.partition("=")[0] for line in ended.tail.splitlines()}
    assert {"KEY", "PATH"} <= names <= {"KEY", "PATH", "PWD", "_", "OLDPWD", "SHLVL"}


def test_python_runs_and_its_cpu_time_is_counted(sandbox: Sandbox, tmp_path: Path):
    run = request_of(sandbox, tmp_path, PYTHON, "-S", "-E", "-c", "x = sum(range(6_000_000)); print(x)", limits=Limits())
    ended = asyncio.run(run_once(run))
    assert ended.code == 0 and "17999997000000" in ended.tail and ended.cpu_s > 0.05


def test_only_the_last_4_kb_of_the_output_are_kept(sandbox: Sandbox, tmp_path: Path):
    ended = shell(sandbox, tmp_path, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done")
    assert len(ended.tail) <= 4096 and ended.tail.endswith("line 2999\n")


def test_a_program_that_does_not_exist_is_told_apart_from_a_sandbox_that_does_not_start(sandbox: Sandbox, tmp_path: Path):
    run = request_of(sandbox, tmp_path, "/nonexistent", limits=Limits())
    assert asyncio.run(run_once(run)).started
    assert not asyncio.run(run_once(request_of(Bubblewrap("/nonexistent/bwrap"), tmp_path, "/bin/true", limits=Limits()))).started


def test_a_sandbox_whose_set_up_fails_has_not_started(tmp_path: Path):
    if Bubblewrap().probe():
        pytest.skip("bwrap does not work here")
    plan = Plan(argv=("/bin/true",), workspace=tmp_path / "missing", environment={"PATH": "/usr/bin:/bin"})
    run = request_of(NoSandbox(), tmp_path, "x", limits=Limits())
    ended = asyncio.run(run_once(Run(**{**{n: getattr(run, n) for n in run.__slots__}, "argv": Bubblewrap().wrap(plan)})))
    assert not ended.started and "bwrap" in ended.tail


def test_asked_to_end_the_harness_can_end_in_order(sandbox: Sandbox, tmp_path: Path):
    script = "trap 'echo bye > bye; exit 0' TERM; touch ready; while :; do sleep 0.1; done"
    ended = shell(sandbox, tmp_path, script, halt_when=tmp_path / "ready", force=False)
    assert (tmp_path / "bye").exists() and ended.code == 0


def test_killing_it_kills_daemons_that_left_the_session(sandbox: Sandbox, tmp_path: Path):
    script = f"setsid sh -c 'trap \"\" TERM HUP; touch ready; sleep 987.{os.getpid()}' & wait"
    shell(sandbox, tmp_path, script, halt_when=tmp_path / "ready")
    assert not pids_of(f"987.{os.getpid()}")


def test_what_it_leaves_behind_when_it_ends_is_killed(sandbox: Sandbox, tmp_path: Path):
    ended = shell(sandbox, tmp_path, f"setsid sh -c 'sleep 986.{os.getpid()}' & exit 0")
    assert ended.code == 0 and not pids_of(f"986.{os.getpid()}")


def pids_of(argument: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if argument.encode() in argv and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def test_a_fork_bomb_breaks_the_limit_on_processes(sandbox: Sandbox, tmp_path: Path):
    script = f"while :; do sleep 985.{os.getpid()} & done"
    ended = shell(sandbox, tmp_path, script, limits=Limits(max_processes=20))
    assert ended.limit == "processes" and not pids_of(f"985.{os.getpid()}")


def test_one_process_cannot_take_more_memory_than_allowed(sandbox: Sandbox, tmp_path: Path):
    run = request_of(sandbox, tmp_path, PYTHON, "-S", "-E", "-c", "x = bytearray(400 << 20)", limits=Limits(memory_mb=200))
    ended = asyncio.run(run_once(run))
    assert ended.code != 0 and "MemoryError" in ended.tail


def test_address_space_is_limited_only_where_it_is_asked_for_and_memory_in_use_always(sandbox: Sandbox, tmp_path: Path):
    """Runtimes like node and Bun reserve gigabytes that they never touch."""
    reserve = "import mmap; held = mmap.mmap(-1, 8 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ); "
    ends = [
        asyncio.run(run_once(request_of(sandbox, tmp_path, PYTHON, "-S", "-E", "-c", script, limits=limits)))
        for script, limits in (
            (reserve, Limits(memory_mb=200)),
            (reserve, Limits(memory_mb=200, address_space_mb=200)),
            (reserve + "x = bytearray(400 << 20)", Limits(memory_mb=200)),
        )
    ]
    assert [end.code == 0 for end in ends] == [True, False, False]
    assert "MemoryError" in ends[2].tail


def test_a_home_is_where_it_is_said_to_be_writable_and_outside_of_the_workspace(sandbox: Sandbox, tmp_path: Path):
    workspace, home = tmp_path / "w", tmp_path / "h"
    for folder in (workspace, home):
        folder.mkdir()
    (home / "settings").write_text("told")
    inside = sandbox.home_inside(home)
    script = 'cat "$HOME/settings" >seen; echo kept >"$HOME/note"; cd "$HOME" && pwd >>"$OLDPWD/seen"'
    plan = Plan(argv=("/bin/sh", "-c", script), workspace=workspace, home=home, environment={"PATH": "/usr/bin:/bin", "HOME": inside})
    asyncio.run(run_once(run_of(sandbox, plan)))
    assert (workspace / "seen").read_text() == f"told{inside}\n"
    assert (home / "note").read_text() == "kept\n"
    assert [path.name for path in workspace.iterdir()] == ["seen"]


def test_many_processes_together_cannot_take_more_memory_than_allowed(sandbox: Sandbox, tmp_path: Path):
    hog = f"{PYTHON} -S -E -c 'import time; x = bytearray(60 << 20); time.sleep(60)'"
    ended = shell(sandbox, tmp_path, f"{hog} & {hog} & {hog} & wait", limits=Limits(memory_mb=100))
    assert ended.limit == "memory"


def test_a_file_cannot_grow_beyond_the_limit(sandbox: Sandbox, tmp_path: Path):
    shell(sandbox, tmp_path, "head -c 5000000 /dev/zero > big", limits=Limits(disk_mb=1))
    assert (tmp_path / "big").stat().st_size <= 1 << 20


def test_killing_everything_in_reach_ends_only_itself(sandbox: Sandbox, tmp_path: Path):
    needs_isolation(sandbox)
    shell(sandbox, tmp_path, "kill -9 $PPID; kill -9 -1; kill -9 1")
    assert is_alive(os.getpid())


def test_other_workspaces_the_run_folder_and_other_processes_do_not_exist_for_it(sandbox: Sandbox, tmp_path: Path):
    needs_isolation(sandbox)
    mine, other, token = tmp_path / "mine", tmp_path / "other", tmp_path / "run" / "state" / "token"
    for folder in (mine, other, token.parent):
        folder.mkdir(parents=True)
    (other / "secret").write_text("other secret")
    token.write_text("run secret")
    (mine / "link").symlink_to(other)
    script = f"cat link/secret {other}/secret ../other/secret {token} /proc/*/environ; ls {tmp_path}; ls -d /proc/[0-9]* | wc -l"
    ended = shell(sandbox, mine, script)
    assert "secret" not in ended.tail.replace(f"{other}/secret", "").replace("../other/secret", "").replace("link/secret", "")
    assert int(ended.tail.split()[-1]) < 10


def test_nothing_outside_of_its_workspace_can_be_written(sandbox: Sandbox, tmp_path: Path):
    needs_isolation(sandbox)
    outside = tmp_path / "outside"
    (tmp_path / "w").mkdir()
    shell(sandbox, tmp_path / "w", f"echo x > {outside}; echo x > /usr/x; echo x > /x; ln -s {outside} l; echo x > l; echo done > done")
    assert (tmp_path / "w" / "done").exists()
    assert not outside.exists() and not Path("/usr/x").exists() and not Path("/x").exists()


def test_the_environment_is_on_no_command_line(sandbox: Sandbox, tmp_path: Path):
    run = request_of(sandbox, tmp_path, "/bin/true", limits=Limits(), environment={"OPENAI_API_KEY": "s3cr3t"})
    assert not any("s3cr3t" in part for part in run.argv)


def test_it_dies_with_the_warden(sandbox: Sandbox, tmp_path: Path):
    async def scenario() -> None:
        harnesses = Harnesses()
        await harnesses.start(died=lambda reason: None)
        run = request_of(sandbox, tmp_path, "/bin/sh", "-c", f"touch ready; sleep 984.{os.getpid()}", limits=Limits())
        task = asyncio.ensure_future(harnesses.run(run))
        await asyncio.to_thread(wait_for, (tmp_path / "ready").exists, "ready")
        assert harnesses._process is not None
        harnesses._process.kill()
        with pytest.raises(Exception, match="warden died"):
            await task
        await harnesses.close()

    asyncio.run(scenario())
    wait_for(lambda: not pids_of(f"984.{os.getpid()}"), "death of the harness")


def test_auto_falls_back_loudly_and_a_demanded_kind_is_refused(caplog: pytest.LogCaptureFixture):
    assert create_sandbox(SandboxKind.auto, "no-such-bwrap").kind == "none"
    assert [record.message for record in caplog.records if "NO SANDBOX" in record.message]
    with pytest.raises(UserError, match="sandbox.kind"):
        create_sandbox(SandboxKind.bwrap, "no-such-bwrap")


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("bwrap") is None, reason="needs root to become nobody, and bwrap")
def test_bwrap_works_for_an_ordinary_user():
    import subprocess

    argv = Bubblewrap().wrap(Plan(argv=("/usr/bin/id", "-u"), workspace=Path("/tmp")))
    done = subprocess.run(
        argv, check=False, user=65534, group=65534, capture_output=True, text=True, timeout=30, pass_fds=(), env={"PATH": "/usr/bin:/bin"}
    )
    assert "65534" in done.stdout, done.stderr
