"""Installing harnesses on request: whole or not at all, whatever happens; npm is played by a script."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.schema import Config, HarnessConfig, PathsConfig
from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.place import MARKER, installed_folder
from gyre_hpc.launch.fetching import disk_bytes
from gyre_hpc.launch.harness_install import install, is_installed
from gyre_hpc.launch.surroundings import check_harness
from tests.fakes.live_run import wait_for

CODEX = create_harness("codex")
VERSION = CODEX.version
GOOD = 'mkdir -p "$prefix/$(dirname "$program")"; echo x >"$prefix/$program"'


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a npm in front of all others; returns the file in which it counts its calls."""
    folder, calls = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()

    def put(script: str) -> Path:
        program = folder / "npm"
        program.write_text(
            f'#!/bin/sh\necho "$@" >>{calls}\nwhile [ "$1" != --prefix ]; do shift; done\nprefix=$2\n'
            f"program={CODEX.installation(VERSION).program}\n{script}\n"
        )
        for path in (program, folder / "node"):
            path.touch()
            path.chmod(0o755)
        return calls

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return put


def folder_in(cache: Path) -> Path:
    folder = installed_folder(cache, CODEX, VERSION)
    assert folder is not None
    return folder


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in (cache / "harnesses").iterdir() if not path.name.endswith(".lock")]


def test_an_install_is_marked_in_place_and_is_done_once(tmp_path: Path, npm: Callable[[str], Path]) -> None:
    calls, said = npm(GOOD), list[str]()
    assert not is_installed(folder_in(tmp_path))
    assert install(CODEX, VERSION, tmp_path, said.append) == install(CODEX, VERSION, tmp_path, said.append) == folder_in(tmp_path)
    assert is_installed(folder_in(tmp_path)) and leftovers(tmp_path) == [f"codex-{VERSION}"]
    (call,) = calls.read_text().splitlines()
    assert f"@openai/codex@{VERSION}" in call and "--ignore-scripts" in call
    assert any("licence: Apache-2.0" in line for line in said) and any("about" in line and "MB" in line for line in said)
    assert 0 < disk_bytes(folder_in(tmp_path)) < 1 << 20


def test_two_installs_at_once_make_one(tmp_path: Path, npm: Callable[[str], Path]) -> None:
    calls = npm(f"while [ ! -e {tmp_path}/go ]; do :; done; {GOOD}")
    said: list[list[str]] = [[], []]

    def waits_for_the_other(index: int, line: str) -> None:
        said[index].append(line)
        if "another install" in line:
            (tmp_path / "go").touch()

    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(install, CODEX, VERSION, tmp_path, lambda line, i=i: waits_for_the_other(i, line)) for i in (0, 1)]
        assert [future.result() for future in made] == [folder_in(tmp_path)] * 2
    assert len(calls.read_text().splitlines()) == 1
    assert leftovers(tmp_path) == [f"codex-{VERSION}"]


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; exit 1", "not reachable"),
        ("echo 'npm error request to https://r failed, reason: connect ECONNREFUSED' >&2; exit 1", "machine with network"),
        ("echo 'npm error code E404' >&2; exit 1", "does not have it"),
        ("echo 'npm error code ENOSPC' >&2; exit 1", "no space"),
        (
            "echo 'npm warn x'; echo 'npm error Cannot read y' >&2; echo 'npm error log: z' >&2; exit 1",
            "exit code 1: npm error Cannot read y",
        ),
        ("exit 7", "exit code 7"),
        ("true", "for this machine"),
    ],
)
def test_a_failed_install_says_why_and_leaves_nothing(tmp_path: Path, npm: Callable[[str], Path], script: str, remedy: str) -> None:
    npm(f'mkdir -p "$prefix/half"; {script}')
    with pytest.raises(UserError) as caught:
        install(CODEX, VERSION, tmp_path, lambda line: None)
    assert caught.value.field == "harness.name" and remedy in caught.value.remedy
    assert leftovers(tmp_path) == []


def test_what_fetches_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="npm is needed .* apt install nodejs npm"):
        install(CODEX, VERSION, tmp_path, lambda line: None)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("sig", "leaves"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_an_interrupted_install_ends_its_fetching_and_the_next_one_starts_afresh(
    tmp_path: Path, npm: Callable[[str], Path], sig: signal.Signals, leaves: bool
) -> None:
    npm(f'mkdir "$prefix/half"; echo $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; exec sleep 600')
    cache = tmp_path / "cache"
    # Whoever started the tests in the background may ignore Ctrl-C; what is started from a terminal does not.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gyre_hpc.cli import main; main()"
    command = [sys.executable, "-c", start, "harness", "install", "codex", "--cache", str(cache)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        wait_for((tmp_path / "pid").exists, "start of npm")
        process.send_signal(sig)
        assert process.wait(30) == (-sig if leaves else 130)
    fetching = int((tmp_path / "pid").read_text())
    if leaves:
        # Nobody was left to end it, and what it still writes may not be swept under it.
        with pytest.raises(BlockingIOError), open(cache / "harnesses" / f".codex-{VERSION}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(fetching, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{fetching}") or " Z " in Path(f"/proc/{fetching}/stat").read_text(), "end of npm")
    assert bool(leftovers(cache)) == leaves
    npm(GOOD)
    install(CODEX, VERSION, cache, lambda line: None)
    assert leftovers(cache) == [f"codex-{VERSION}"]


def test_a_folder_without_its_marker_is_made_anew(tmp_path: Path, npm: Callable[[str], Path]) -> None:
    npm(GOOD)
    install(CODEX, VERSION, tmp_path, lambda line: None)
    (folder_in(tmp_path) / MARKER).unlink()
    assert not is_installed(folder_in(tmp_path))
    install(CODEX, VERSION, tmp_path, lambda line: None)
    assert is_installed(folder_in(tmp_path))


def test_a_run_with_a_harness_that_is_not_installed_is_refused_with_the_command(tmp_path: Path, npm: Callable[[str], Path]) -> None:
    config = Config(
        harness=HarnessConfig(name="codex", max_calls=0, max_output_tokens=0, context_tokens=8000),
        paths=PathsConfig(cache=str(tmp_path)),
    )
    with pytest.raises(UserError) as caught:
        check_harness(config)
    assert str(caught.value) == f"harness.name='codex': not installed; run: gyre harness install codex --cache {tmp_path}"
    npm(GOOD)
    install(CODEX, VERSION, tmp_path, lambda line: None)
    check_harness(config)


def test_list_and_install_on_the_command_line(tmp_path: Path, npm: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    npm(GOOD)
    assert run(["harness", "install", "codex", "--cache", str(tmp_path)]) == 0
    assert run(["harness", "install", "shell_agent", "--cache", str(tmp_path)]) == 0
    capsys.readouterr()
    assert run(["harness", "list", "--cache", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {(cells[0], cells[1]): cells for cells in map(str.split, lines) if len(cells) > 1}
    assert lines[0].split() == ["NAME", "VERSION", "PROTOCOL", "INSTALLED", "SIZE", "LICENCE"]
    assert found["codex", VERSION][2:4] == ["responses", "yes"]
    assert found["opencode", "1.18.33"][2:6] == ["chat_completions", "no", "~354", "MB"]
    assert found["claude_code", "2.1.220"][2:5] == ["(default)", "messages", "no"]
    assert found["claude_code", "2.1.332"][3] == "no" and "proprietary," in found["claude_code", "2.1.332"]
    assert found["command", "1"][3:5] == ["comes", "along"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], ["harness.name='nosuch'", "claude_code", "codex"]),
        (["codex", "--version", "1"], ["harness.version='1'", VERSION]),
        (["codex", "--cache", "/proc/nosuch"], ["--cache=", "/proc/nosuch"]),
    ],
)
def test_a_wrong_name_version_or_place_is_one_line(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harness", "install", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words)
