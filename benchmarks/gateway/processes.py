"""Processes under test: started on one core, their CPU and memory read, ended with everything they started."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

_PINNED = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execvp(sys.argv[2], sys.argv[2:])"
START_S = 120.0


def cores() -> tuple[int, int]:
    """(core of the proxy under test, core of client and stub). The same one twice on a machine with a single core."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


class Process:
    """One child, pinned."""

    def __init__(self, command: Sequence[str], core: int, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _PINNED, str(core), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
                start_new_session=True,
            )

    def first_line(self) -> str:
        """Blocks until the process printed a line. Raises RuntimeError when it ended instead."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(self._words("ended before it was ready"))
        return line

    def wait_for(self, url: str) -> None:
        """Until `url` answers, whatever it answers."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self._child.poll() is not None:
                raise RuntimeError(self._words(f"ended with code {self._child.returncode}"))
            try:
                urllib.request.urlopen(url, timeout=2).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(self._words(f"did not answer within {START_S:.0f} s"))

    def cpu_s(self) -> float:
        """CPU seconds of all its threads and children so far, to the nanosecond."""
        return sum(_thread_cpu_ns(pid) for pid in self._pids()) / 1e9

    def memory_kib(self) -> int:
        """Resident memory of it and its children."""
        return int(sum(psutil.Process(pid).memory_info().rss for pid in self._pids()) // 1024)

    def _pids(self) -> list[int]:
        process = psutil.Process(self._child.pid)
        return [process.pid, *(child.pid for child in process.children(recursive=True))]

    def _words(self, what: str) -> str:
        return f"{what}; the end of {self._log}:\n{self._log.read_text(errors='replace')[-2000:]}"

    def close(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()


def _thread_cpu_ns(pid: int) -> int:
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(thread.read_text().split()[0])
        except (OSError, IndexError):
            continue  # ended meanwhile
    return total
