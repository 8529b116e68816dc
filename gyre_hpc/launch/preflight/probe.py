"""What one node has, looked at from within: folders, GPUs, left-over processes, versions, sandbox. Opens no connection."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gyre_hpc.addresses import address_here
from gyre_hpc.config.place import above_scratch, cache_folder
from gyre_hpc.config.schema import Config, SandboxKind
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.facts import Gpu, Leftover, NodeProbe, Place, Unseen
from gyre_hpc.launch.preflight.sandbox_trial import try_sandbox
from gyre_hpc.launch.versions import versions_here
from gyre_hpc.observability.process_tree import identify
from gyre_hpc.sandboxes import Bubblewrap
from gyre_hpc.shell.lifetime import PARENT_PID
from gyre_hpc.supervisor.devices import devices_here

_ASK_DEADLINE_S = 30.0
_GPU_QUERY = ("index", "uuid", "name", "memory.total", "memory.used")
_SHOWN_BYTES = 120
"""Of a command line."""


def look(config: Config, node: int, run: Path) -> NodeProbe:
    """run: a folder that is there, on the file system of the run folder."""
    address, address_error = _address(config)
    gpus, gpu_error = gpus_here(os.environ)
    no_sandbox = "" if config.sandbox.kind is SandboxKind.none else Bubblewrap().probe()
    return NodeProbe(
        node=node,
        host=host_here(),
        address=address,
        address_error=address_error,
        run=_place(lambda: run),
        scratch=_place(lambda: above_scratch(config)),
        cache=_place(lambda: cache_folder(config)),
        gpus=gpus,
        gpu_error=gpu_error,
        leftovers=tuple(leftovers()),
        versions=versions_here(config),
        interconnects=interconnects(),
        sandbox=no_sandbox,
        unseen=None if config.sandbox.kind is SandboxKind.none or no_sandbox else _unseen(config),
    )


def host_here() -> str:
    """Name of this node as SLURM and people know it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def gpus_here(environ: Mapping[str, str]) -> tuple[tuple[Gpu, ...], str]:
    """(those that this process may use, what went wrong); nothing of both where there is no nvidia-smi."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return (), ""
    try:
        done = subprocess.run(
            [program, f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=False, timeout=_ASK_DEADLINE_S, env=dict(environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return (), f"nvidia-smi: {error}"
    if done.returncode:
        return (), f"nvidia-smi: {(done.stderr or done.stdout).strip() or f'exit code {done.returncode}'}"
    mine = devices_here(environ)
    try:
        rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
        known = {key: Gpu(name=row[2], memory_mb=int(row[3]), used_mb=int(row[4])) for row in rows for key in (row[0], row[1])}
    except (ValueError, IndexError):
        return (), f"nvidia-smi: an answer that cannot be read: {done.stdout.strip()[:_SHOWN_BYTES]}"
    return tuple(known[device] for device in mine if device in known), ""


def leftovers(root: Path = Path("/proc")) -> Iterator[Leftover]:
    """This user's processes of runs whose parent is gone: a run's processes end with their parents, so something kept these."""
    here = _namespace(root / "self")
    for entry in root.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.getuid() or _namespace(entry) != here:  # in a sandbox parents have other numbers
                continue
            environ = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # gone meanwhile, or of somebody else
            continue
        mark = f"{PARENT_PID}=".encode()
        parent = next((value[len(mark) :] for value in environ if value.startswith(mark)), b"")
        if command and parent.isdigit() and int(parent) != os.getppid() and identify(int(parent)) is None:
            yield Leftover(pid=int(entry.name), command=command[:_SHOWN_BYTES])


def interconnects(root: Path = Path("/sys/class/infiniband")) -> tuple[str, ...]:
    """Names of the RDMA devices, e.g. mlx5_0."""
    try:
        return tuple(sorted(entry.name for entry in root.iterdir()))
    except OSError:
        return ()


def _namespace(process: Path) -> str:
    return os.readlink(process / "ns" / "pid")


def _address(config: Config) -> tuple[str, str]:
    try:
        return address_here(config.network.interface), ""
    except UserError as error:
        return "", error.remedy


def _unseen(config: Config) -> Unseen | None:
    try:
        return try_sandbox(config)
    except UserError as error:
        # What is wrong with a folder in itself stands beside its name.
        return None if error.field.startswith("paths.") else Unseen(field=error.field, path=str(error.value), error=error.remedy)
    except OSError as error:
        return Unseen(field="paths.scratch", path=str(error.filename or config.paths.scratch), error=str(error))


def _place(find: Callable[[], Path]) -> Place:
    try:
        folder = find()
    except UserError as error:
        return Place(path=str(error.value), error=error.remedy)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
        room = os.statvfs(folder)
    except OSError as error:
        return Place(path=str(folder), error=str(error))
    return Place(path=str(folder), free_bytes=room.f_bavail * room.f_frsize, free_inodes=room.f_favail if room.f_files else None)
