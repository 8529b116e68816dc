"""Signs of life of a run, as its folder shows them.

The first node's supervisor touches attempts/<n>/alive every two seconds; the controller rewrites status.json every second. How old that
is cannot be told from our own clock: it may differ from that of the node, or of the file server. So the time of a file that we make in
the same folder just now is compared with it: on most file systems one clock, the server's, gives both. Where each machine stamps files by
its own clock, a look that finds no fresh sign waits for the next one: what changes before our eyes is alive whatever the clocks say.
"""

import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.observability.job_events import ENDED, of_job
from gyre_hpc.protocol.node_map import RunStart
from gyre_hpc.shell.node_map import read_start
from gyre_hpc.supervisor.attempts import end_of, highest_attempt

SILENT_S = 15.0
_AHEAD_S = 2.0
"""A sign from so far in the future was stamped by another clock."""
_LOOK_S = 4.5
"""Two touches."""
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """attempts/<n>/end.json."""

    exit_code: int
    reason: str
    time: float
    next: str = ""
    """What follows it, as its job said: `requeue`, `leave`, `end`; empty: nobody said (yet)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A job that ended before it began the attempt after the newest one."""

    job: str
    exit_code: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """Of the newest attempt."""

    attempt: int
    """0: there is none."""
    end: End | None
    start: RunStart | None
    """None: its supervisor does not listen yet."""
    silent_s: float
    """Seconds since the newest sign of life; below SILENT_S while it lives. 0 without an attempt."""
    refusal: Refusal | None = None
    """None: no job was refused since."""
    status_behind_s: float = 0.0
    """How long before the newest sign of life status.json was written, both stamped by the same clock."""


def read_signs(folder: RunFolder, *, patient: bool = True, wait: Callable[[float], None] = time.sleep) -> Signs:
    """`patient`: where no sign is fresh, look for some seconds whether one comes."""
    attempt = highest_attempt(folder.attempts)
    refusal = _refusal(folder, attempt + 1)
    if not attempt:
        return Signs(attempt=0, end=None, start=None, silent_s=0.0, refusal=refusal)
    end = read_end(folder, attempt)
    silent_s = 0.0 if end is not None else _silence(folder, attempt, patient, wait)
    return Signs(
        attempt=attempt,
        end=end,
        start=_start(folder, attempt),
        silent_s=silent_s,
        refusal=refusal,
        status_behind_s=_behind(folder, attempt),
    )


def read_end(folder: RunFolder, attempt: int) -> End | None:
    """None: the attempt has not ended, or died without a word."""
    try:
        raw = json.loads(end_of(folder, attempt).read_bytes())
        return End(exit_code=int(raw["exit_code"]), reason=str(raw["reason"]), time=float(raw["time"]), next=str(raw.get("next", "")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return End(exit_code=1, reason=f"its end cannot be read ({error})", time=0.0)


def _refusal(folder: RunFolder, attempt: int) -> Refusal | None:
    ended = [event.fields for event in of_job(folder, attempt) if event.kind == ENDED]
    if not ended:
        return None
    newest = ended[-1]
    return Refusal(job=str(newest["job"]), exit_code=int(newest["exit_code"]), reason=str(newest["reason"]))


def answers_http(start: RunStart | None, token: str, within_s: float = 2.0) -> bool:
    """The attempt's supervisor-0 can be reached from here, and takes our token."""
    if start is None or not start.url:
        return False
    # No message: what is asked is whether it refuses the body (400) or us (401).
    request = urllib.request.Request(f"{start.url}/messages", data=b"{}", headers={"Authorization": f"Bearer {token}"})
    try:
        with DIRECT.open(request, timeout=within_s):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 400
    except (TimeoutError, OSError, ValueError):
        return False


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Nodes of a cluster are reached without a site's web proxy."""


def _behind(folder: RunFolder, attempt: int) -> float:
    alive, written = _time(folder.alive(attempt)), _time(folder.status)
    return max(0.0, alive - written) if alive is not None and written is not None else 0.0


def _silence(folder: RunFolder, attempt: int, patient: bool, wait: Callable[[float], None]) -> float:
    first = _newest(folder, attempt)
    if first is None:
        return SILENT_S
    silent_s = _now(folder) - first
    if not patient or -_AHEAD_S <= silent_s < SILENT_S:
        return max(silent_s, 0.0)
    for _ in range(round(_LOOK_S / _LOOK_EVERY_S)):
        wait(_LOOK_EVERY_S)
        if _newest(folder, attempt) != first:
            return 0.0
    return max(silent_s, SILENT_S)


def _newest(folder: RunFolder, attempt: int) -> float | None:
    """Of runs of older versions there is status.json alone."""
    own = folder.attempts / str(attempt)
    times = [_time(path) for path in (folder.alive(attempt), folder.start(attempt), own)]
    if times[0] is None:
        times.append(_time(folder.status))
    return max((one for one in times if one is not None), default=None)


def _time(path: Path) -> float | None:
    """Opened, not just asked for: over NFS that brings the server's present answer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.fstat(file).st_mtime
    except OSError:
        return None
    finally:
        os.close(file)


def _now(folder: RunFolder) -> float:
    """By the clock that stamps files there; ours where nothing can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder.attempts) as file:
            file.write(b".")
            file.flush()
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return unix_s()


def _start(folder: RunFolder, attempt: int) -> RunStart | None:
    try:
        return read_start(folder.start(attempt))
    except (OSError, UserError):
        return None
