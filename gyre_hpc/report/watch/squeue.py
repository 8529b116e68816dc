"""This user's jobs as SLURM's squeue(1) shows them: one call for all of them, kept in the cache for every command that asks within 30 s.

Without SLURM, or while it does not answer, there are the jobs that it named last, or none: a monitor waits for nothing. Accounting
(sacct) is never needed.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.whole_file import write_whole

FRESH_S = 30.0
_DEADLINE_S = 10.0
_FORMAT = "%i|%T|%S|%L|%N|%P|%r|%j"
"""The texts that may hold anything come last."""
PENDING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
LIVING = frozenset({"RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


class QueueJob(msgspec.Struct, frozen=True, kw_only=True):
    """One line of squeue."""

    id: str
    """`12`; `12_3` in an array."""
    state: str
    """JobState, long form."""
    start: float | None
    """Unix seconds of its start, or of the one that SLURM expects; None: it cannot tell."""
    left_s: float | None
    """Seconds to its time limit when squeue was asked; None: no limit, or not started."""
    nodes: str
    partition: str
    reason: str
    """Why it waits; `None` while it does not."""
    name: str


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of the cache's file."""

    time: float
    """Unix seconds of the newest try."""
    asked: float = 0.0
    """Of the answer that `jobs` are from; 0: there was none."""
    jobs: tuple[QueueJob, ...] = ()
    trouble: str = ""
    """Why the newest try brought nothing."""

    def job(self, id: str) -> QueueJob | None:
        """That job; of an array, its first element that is there."""
        return next((job for job in self.jobs if job.id == id or job.id.partition("_")[0] == id), None)


def read_queue(cache: Path, now: float | None = None) -> Queue | None:
    """None: there is no SLURM here. `cache`: folder of paths.cache. Never raises for what SLURM or the cache do."""
    if shutil.which("squeue") is None:
        return None
    now = unix_s() if now is None else now
    path = cache / f"squeue-{os.getuid()}.json"
    known = _read(path)
    if known is not None and 0 <= now - known.time < FRESH_S:
        return known
    claim = path.with_suffix(".asking")
    if not _claimed(claim, now):
        return known or Queue(time=now, trouble="another command is asking squeue just now")
    try:
        answer = _ask(now, known)
        with contextlib.suppress(OSError):  # a full disk: then each command asks for itself
            write_whole(path, msgspec.json.encode(answer), mode=0o600)
        return answer
    finally:
        claim.unlink(missing_ok=True)


def _ask(now: float, known: Queue | None) -> Queue:
    try:
        done = subprocess.run(
            ["squeue", "--me", "--noheader", "--array", "-o", _FORMAT],
            capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, stdin=subprocess.DEVNULL, check=False,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )  # fmt: skip
        trouble = done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        trouble = f"no answer within {_DEADLINE_S:g} s"
    except OSError as error:
        trouble = str(error)
    if trouble:
        return Queue(time=now, asked=known.asked if known else 0.0, jobs=known.jobs if known else (), trouble=f"squeue: {trouble}")
    return Queue(time=now, asked=now, jobs=parse(done.stdout))


def parse(text: str) -> tuple[QueueJob, ...]:
    """Lines of _FORMAT; what is no such line is left out."""
    found = []
    for line in text.splitlines():
        parts = line.split("|", 7)
        if len(parts) == 8 and parts[0].strip():
            id, state, start, left, nodes, partition, reason, name = (part.strip() for part in parts)
            found.append(
                QueueJob(
                    id=id,
                    state=state,
                    start=_number(start),
                    left_s=seconds(left),
                    nodes=nodes,
                    partition=partition,
                    reason=reason,
                    name=name,
                )
            )
    return tuple(found)


def seconds(text: str) -> float | None:
    """`1-02:03:04`, `2:03:04`, `3:04` in seconds; None for UNLIMITED, NOT_SET, INVALID and anything else."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not (1 <= len(parts) <= 3 and all(part.isdigit() for part in parts) and (not dash or days.isdigit())):
        return None
    hours, minutes, rest = (0, 0, *map(int, parts))[-3:]
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest)


def _number(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) > 0 else None


def _read(path: Path) -> Queue | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Queue)
    except (OSError, msgspec.MsgspecError):
        return None


def _claimed(claim: Path, now: float) -> bool:
    """Of all commands that find the answer old, one asks. A claim whose owner died does not count for long."""
    for _ in range(2):
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            return True
        except FileExistsError:
            with contextlib.suppress(OSError):
                if abs(now - claim.stat().st_mtime) > FRESH_S:
                    claim.unlink(missing_ok=True)
        except OSError:  # the folder takes no files
            return True
    return False
