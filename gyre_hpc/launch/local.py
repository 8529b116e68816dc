"""A run on this machine: starts its supervisor, shows it, ends it in order, says how it went.

The supervisor holds everything else. It dies with this process: by signal, and by the pipe that only we hold open.
"""

import json
import os
import re
import signal
import subprocess
import sys
import traceback

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.finished import check_updates, is_finished
from gyre_hpc.launch.folder import Claim, prepare
from gyre_hpc.launch.holding import hold_supervisor, stop_signals
from gyre_hpc.launch.writing_up import write_up
from gyre_hpc.machines.supervision import STOPPED
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, write_summary
from gyre_hpc.report.view import follow, make_view
from gyre_hpc.runner.scratch import remove_scratch
from gyre_hpc.shell.refusal import REFUSAL
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.commands import MODULES
from gyre_hpc.telling import fall_silent, tell

_DIED = 1
_LOG_TAIL = 4096
"""Bytes of a log in which its last line is looked for."""


def main(config: Config, modules: str = MODULES) -> int:
    """Run to the end; return the exit code. `modules` is the package of the process mains. Raises UserError."""
    check_updates(config)
    if is_finished(config):
        story = read_story(config.resume)
        tell(f"nothing left to do; {closing_line(write_summary(story), story.folder.report)}")
        return 0
    claim = prepare(config, unix_s())
    return conclude(claim, stay_with(claim, config, modules))


def stay_with(claim: Claim, config: Config, modules: str = MODULES) -> int:
    """Start the supervisor of a claimed attempt, show the run, return its exit code."""
    tell(f"run: {claim.folder.root}")
    argv = ["--attempt", str(claim.attempt), "--modules", modules]
    with stop_signals() as stop, hold_supervisor(claim.folder, FIRST, argv) as supervisor:
        stop.pass_on_to(supervisor)
        _show(claim.folder, supervisor)
        code = supervisor.wait()
    if stop.came and code == -signal.SIGTERM:  # told to stop before it could do so in order: it had started nothing yet
        code = STOPPED
    # Of a supervisor that was killed.
    remove_scratch(config, claim.folder, code, is_newest=lambda: highest_attempt(claim.folder.attempts) == claim.attempt)
    return code


def _show(folder: RunFolder, supervisor: subprocess.Popen[bytes]) -> None:
    """The live view until the run is over. A view that fails is told and given up; the run goes on."""
    try:
        with make_view() as view:
            follow(folder, lambda: supervisor.poll() is not None, view)
    except Exception as error:  # noqa: BLE001  (a monitor never ends a run)
        if isinstance(error, OSError):
            fall_silent()
        else:
            traceback.print_exc()


def conclude(claim: Claim, code: int) -> int:
    """Summary and report of what there is; the last line says how it went. A report that cannot be written is the error of a good run alone."""
    folder, line = claim.folder, ""
    try:
        line = write_up(folder)
    except UserError as error:
        if code == 0:
            raise
        tell(str(error), sys.stderr)
    if code not in (0, STOPPED):
        return say_failed(claim, code)
    tell(f"run stopped; go on with: python launch.py resume={folder.root}" if code == STOPPED else line)
    return code


def say_failed(claim: Claim, code: int) -> int:
    """Why a run failed and where to look; return the exit code to give."""
    reason = _reason(claim)
    tell(f"run failed: {reason}; logs: {claim.folder.root / 'logs'}", sys.stderr)
    if said := _last_words(claim, reason):
        tell(f"  {said}", sys.stderr)
    return code if code > 0 else _DIED


def _reason(claim: Claim) -> str:
    try:
        return str(json.loads(end_of(claim.folder, claim.attempt).read_text())["reason"])
    except FileNotFoundError:
        return "the supervisor died; see logs/supervisor-0.log"
    except (OSError, ValueError) as error:
        return f"its end cannot be read ({error}); see logs/supervisor-0.log"


def _last_words(claim: Claim, reason: str) -> str:
    """Of the log that `reason` names: the refusal it speaks of, else the last line, where an error's message stands."""
    named = re.search(r"logs/([\w-]+)\.log", reason)
    if named is None:
        return ""
    try:
        with open(claim.folder.log(named[1]), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL))
            lines = [line.strip() for line in reversed(file.read().decode(errors="replace").split("\n")) if line.strip()]
    except OSError:
        return ""
    wanted = REFUSAL if "refused" in reason else ""
    return next((line.removeprefix(REFUSAL) for line in lines if line.startswith(wanted)), lines[0] if lines else "")
