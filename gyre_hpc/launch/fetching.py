"""What fetching anything into the cache needs: one at a time, made aside, ended with us, and why it failed.

Invariants: of two that fetch the same folder one waits for the other; what an interrupted or failed fetch made is gone, what a
killed one made is swept by the next; the lock outlives us as long as a program that we started still writes.
"""

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from gyre_hpc.runner.workspaces import remove_tree

Say = Callable[[str], None]
Reasons = tuple[tuple[str, str], ...]
"""What a line of a program's output means (a pattern), the first that fits; and what to do about it."""

_REASONS: Reasons = (
    (
        (
            r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|network (?:is )?unreachable|name ?resolution|failed to resolve"
            r"|new connection|read timed out"
        ),
        "cannot be fetched, the package registry is not reachable; try again on a machine with network",
    ),
    (r"ENOSPC|no space left", "there is no space for it; make room, or name another folder with --cache"),
    (r"E404|ETARGET|no matching (?:version|distribution)", "the package registry does not have it; ask the registry's owner for it"),
    (r"ensurepip", "this Python cannot make environments; install them, e.g. apt install python3-venv"),
)
"""npm's and pip's."""


def disk_bytes(folder: Path) -> int:
    """What it takes on disk; files with several names count once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


@contextlib.contextmanager
def alone(folder: Path, say: Say) -> Iterator[int]:
    """One install of a folder at a time. The lock ends with its last holder: us, or a fetching program that outlives us."""
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another install of it is going on; waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


@contextlib.contextmanager
def made_aside(folder: Path) -> Iterator[Path]:
    """A folder beside it, gone at the end unless it was renamed. The lock makes every other one of this name a leftover."""
    prefix = f".{folder.name}.installing-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        remove_tree(leftover)
    aside = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    aside.chmod(0o755)
    try:
        yield aside
    finally:
        if aside.exists():
            remove_tree(aside)


def run_to_end(argv: list[str], lock: int, environ: Mapping[str, str] | None = None) -> tuple[int, list[str]]:
    """Its exit code and what it said; it and all that it started end with us if we are interrupted. Raises OSError."""
    with tempfile.TemporaryFile() as output:
        with _Interrupts() as interrupts:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, pass_fds=(lock,), env=environ
            )
            interrupts.end_with(process.pid)
            code = process.wait()
        if interrupts.heard:
            raise KeyboardInterrupt
        output.seek(0)
        return code, output.read().decode(errors="replace").splitlines()


def remedy(program: str, code: int, lines: list[str], first: Reasons = ()) -> str:
    """Why it failed, in its own words where they are known, and what to do; `first`: reasons looked for before those of everybody."""
    for pattern, what_to_do in (*first, *_REASONS):
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                return f"{what_to_do} ({program}: {line.strip()[:300]})"
    said = [line.strip() for line in lines if "error" in line.lower()] or [line.strip() for line in lines if line.strip()]
    return f"{program} failed with exit code {code}{': ' + said[0][:300] if said else ''}; try again"


class _Interrupts:
    """While it is entered, Ctrl-C ends a process group instead of raising: an exception may come where nobody knows of the process yet,
    or where Python drops it (finalizers)."""

    def __init__(self) -> None:
        self.heard = False
        self._group = 0
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def end_with(self, group: int) -> None:
        self._group = group
        if self.heard:
            self._end()

    def _hear(self, *_: object) -> None:
        self.heard = True
        if self._group:
            self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
