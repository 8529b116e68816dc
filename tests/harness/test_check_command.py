"""`gyre harness check` as a command: bad input, a failing check, an interrupted one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gyre_hpc.cli.commands import run

GYRE = (
    sys.executable,
    "-c",
    # A shell starts what it puts into the background deaf to this signal.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gyre_hpc.cli import main; main()",
)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nobody"], "no such harness"),
        (["shell_agent", "--version", "9"], "known in: 1"),
        (["shell_agent", "--scenario", "nothing"], "use one of text"),
        (["shell_agent", "--record", "/no/such/folder"], "name a folder that exists"),
        (["codex", "--cache", "{tmp}"], "gyre harness install codex --cache /"),
        (["command"], "no rehearsal for it"),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(argv: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harness", "check", *(word.format(tmp=tmp_path) for word in argv)]) == 2
    shown = capsys.readouterr().err
    assert words in shown and shown.count("\n") == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_leaves_no_process_and_no_folder(sent: signal.Signals, tmp_path: Path) -> None:
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    running = subprocess.Popen(
        [*GYRE, "harness", "check", "shell_agent", "--scenario", "slow_cell"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, text=True,
    )  # fmt: skip
    assert running.stdout is not None and running.stdout.readline().startswith("slow_cell")
    below = psutil.Process(running.pid).children(recursive=True)
    assert len(below) >= 3
    running.send_signal(sent)
    assert running.wait(timeout=60) == 130
    running.stdout.close()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == [] and list(tmp_path.iterdir()) == []
