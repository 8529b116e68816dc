"""bubblewrap: own user, pid, ipc, uts and mount namespaces; works unprivileged where user namespaces are allowed.

The process sees /usr read-only, its program, a private /tmp, its home and its workspace as /workspace; other processes, other
workspaces and the run folder do not exist for it. The network is shared with the host: docs/security.md.
"""

import os
import shutil
import subprocess
from pathlib import Path

from gyre_hpc.sandboxes.base import ANNOUNCE, Plan, Sandbox

WORKSPACE = "/workspace"
HOME = "/home/agent"
_PROBE_DEADLINE_S = 20.0
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")


class Bubblewrap(Sandbox):
    """The default where its probe works."""

    kind = "bwrap"
    isolates = True
    num_processes = 2

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    def wrap(self, plan: Plan) -> list[str]:
        argv = [shutil.which(self._program) or self._program, *_NAMESPACES, *_system()]
        argv += ["--proc", "/proc", "--dev", "/dev", "--size", str(plan.limits.disk_mb << 20), "--tmpfs", "/tmp"]
        for path in plan.readable:
            if not path.is_relative_to("/usr"):
                argv += ["--ro-bind", str(path), str(path)]
        if plan.home is not None:
            argv += ["--bind", str(plan.home), HOME]
        argv += ["--bind", str(plan.workspace), WORKSPACE, "--remount-ro", "/", "--chdir", WORKSPACE, "--"]
        return [*argv, *ANNOUNCE, *plan.argv]

    def probe(self) -> str:
        if shutil.which(self._program) is None:
            return f"{self._program} is not installed"
        argv = [self._program, *_NAMESPACES, *_system(), "--proc", "/proc", "--dev", "/dev", "--", "/bin/sh", "-c", ":"]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_DEADLINE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return "" if done.returncode == 0 else (done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}")

    def inside(self, workspace: Path) -> str:
        return WORKSPACE

    def home_inside(self, home: Path) -> str:
        return HOME


_NAMESPACES = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    "--cap-drop", "ALL", "--die-with-parent", "--new-session",
)  # fmt: skip


def _system() -> list[str]:
    """/usr, the links of the root into it, and the few files of /etc that programs of /usr need."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM_LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    for path in _SYSTEM_FILES:
        argv += ["--ro-bind-try", path, path]
    return argv
