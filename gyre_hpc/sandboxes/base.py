"""Sandboxes: how one execution's harness process is kept to its workspace. One file per kind."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

START_FD = 3
"""Inherited by the sandbox; a line appears on it once the harness itself is about to be executed. Without that line
the sandbox failed, not the harness."""
ANNOUNCE = ("/bin/sh", "-c", f'echo started >&{START_FD}; exec {START_FD}>&-; exec "$@"', "sh")
"""Goes before the harness's argv, inside the sandbox."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Hard limits of one execution."""

    memory_mb: int = 256
    """Resident memory of all processes together, and private memory of each."""
    address_space_mb: int = 0
    """Of each process; 0: no limit, for runtimes that reserve far more than they use."""
    max_processes: int = 64
    disk_mb: int = 64
    cpu_s: int = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run inside."""

    argv: tuple[str, ...]
    workspace: Path
    home: Path | None = None
    """Writable, outside the workspace, gone with it; None: it has none."""
    environment: dict[str, str] = field(default_factory=dict)
    """The whole environment; nothing is inherited. Given to the process, never on a command line: those are public."""
    readable: tuple[Path, ...] = ()
    """Host files or folders the process may read (the harness's own program)."""
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 0
    limits: Limits = field(default_factory=Limits)


class Sandbox(ABC):
    """Turns a plan into a command line. It starts nothing itself."""

    kind: str
    isolates: bool
    """False: only limits hold; the process reads and signals whatever its user may."""
    num_processes: int = 0
    """Processes the sandbox itself puts between the first process and the harness."""

    @abstractmethod
    def wrap(self, plan: Plan) -> list[str]:
        """argv whose process tree ends when its first process and all that is below it are killed. Runs ANNOUNCE."""

    @abstractmethod
    def probe(self) -> str:
        """Empty if this kind works here, else why not (one line)."""

    def inside(self, workspace: Path) -> str:
        """Path of the workspace as the process sees it."""
        return str(workspace)

    def home_inside(self, home: Path) -> str:
        """Path of the home folder as the process sees it."""
        return str(home)
