"""A supervisor of stand-in processes on a real run folder, seen from outside: pids, endpoints, messages."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Self

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol.envelope import Envelope, Message, encode
from gyre_hpc.protocol.supervision import Entry
from gyre_hpc.shell.lifetime import PARENT_PID
from tests.fakes.own_folder import forget_scratch_at_exit

REPOSITORY = Path(__file__).parents[2]


def wait_for(true: Callable[[], object], what: str, within_s: float = 40.0, every_s: float = 0.02) -> None:
    """Poll until `true()`; fail with `what` otherwise."""
    limit = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < limit, f"waited {within_s} s in vain: {what}"
        time.sleep(every_s)


def is_alive(pid: int) -> bool:
    """Zombies are dead: nobody may reap them in a container."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def descendants(pid: int) -> set[int]:
    """All living processes below `pid`, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, frontier = set[int](), {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return {child for child in found if is_alive(child)}


def wait_dead(pids: set[int], within_s: float = 40.0) -> None:
    """Until none of them lives; the failure shows what is left of them."""
    limit = time.monotonic() + within_s
    while left := [pid for pid in pids if is_alive(pid)]:
        if time.monotonic() > limit:
            raise AssertionError(f"still alive after {within_s} s: {[_portrait(pid) for pid in left]}")
        time.sleep(0.02)


def _portrait(pid: int) -> str:
    folder = Path(f"/proc/{pid}")
    wanted = ("State", "PPid", "SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "Threads")
    status = [line for line in (folder / "status").read_text().splitlines() if line.startswith(wanted)]
    return f"{pid} {(folder / 'cmdline').read_bytes()!r} {status} {(folder / 'wchan').read_text()}"


class LiveRun:
    """Use as a context manager; whatever it started is dead after it."""

    def __init__(self, root: Path, config: Config, *, attempt: int = 1, modules: str = "tests.fakes.processes") -> None:
        self.folder, self.attempt, self.modules = RunFolder(root), attempt, modules
        store_config(config, self.folder.config)
        self.folder.token.parent.mkdir(parents=True, exist_ok=True)
        self.folder.token.write_text("run-token")
        (self.folder.attempts / str(attempt)).mkdir(parents=True, exist_ok=True)
        self.seen: set[int] = set()
        forget_scratch_at_exit(self.folder, config)

    def __enter__(self) -> Self:
        log = self.folder.log("supervisor-0")
        log.parent.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "gyre_hpc.processes.supervisor", "--run", str(self.folder.root)]
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*argv, "--attempt", str(self.attempt), "--modules", self.modules],
                cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, PARENT_PID: str(os.getpid()), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.seen |= descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        for pid in self.seen:
            if is_alive(pid):
                signal_quietly(pid, signal.SIGKILL)

    def entries(self) -> dict[str, Entry]:
        """The mirrored directory."""
        try:
            mirrored = json.loads(self.folder.endpoints.read_text())
        except FileNotFoundError:
            return {}
        return {entry["process"]: Entry(**entry) for entry in mirrored["entries"]}

    def wait_registered(self, *names: str) -> dict[str, Entry]:
        """Until all (or the named) processes have an address."""

        def registered() -> bool:
            assert self.process.poll() is None, self.folder.log("supervisor-0").read_text()
            entries = self.entries()
            return bool(entries) and all(entries[name].url for name in names or entries)

        wait_for(registered, f"registration of {names or 'all'}")
        self.seen |= descendants(self.process.pid)
        return self.entries()

    def pid(self, name: str) -> int:
        """The child of the supervisor whose command line has `--name NAME`."""
        for pid in descendants(self.process.pid):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--name" in argv and argv[argv.index(b"--name") + 1] == name.encode() and parent(pid) == self.process.pid:
                return pid
        raise AssertionError(f"no process named {name}")

    def supervisor_url(self) -> str:
        argv = Path(f"/proc/{self.pid('controller')}/cmdline").read_bytes().split(b"\0")
        return argv[argv.index(b"--supervisor") + 1].decode()

    def post(self, message: Message, *, sender: str = "controller", token: str = "run-token", attempt: int | None = None) -> int:
        """HTTP status of a message to the supervisor."""
        body = encode(Envelope(sender, self.attempt if attempt is None else attempt, message))
        request = urllib.request.Request(
            f"{self.supervisor_url()}/messages", data=body, headers={"Authorization": f"Bearer {token}"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def listening_addresses(pids: set[int]) -> set[str]:
    """Hex addresses the processes listen on (IPv4 and IPv6). Those that end meanwhile do not count."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    target = os.readlink(link)
                    if target.startswith("socket:["):
                        inodes.add(target[8:-1])
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found
