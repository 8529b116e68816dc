"""Sandboxes: how one execution's harness process is kept to its workspace. One file per kind."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Hard limits of one execution."""

    memory_mb: int = 256
    max_processes: int = 64
    disk_mb: int = 64
    cpu_s: int = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run inside."""

    argv: tuple[str, ...]
    workspace: Path
    environment: dict[str, str] = field(default_factory=dict)
    """The whole environment; nothing is inherited."""
    readable: tuple[Path, ...] = ()
    """Host files or folders the process may read (the harness's own program)."""
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 0
    limits: Limits = field(default_factory=Limits)


class Sandbox(ABC):
    """Turns a plan into a command line. It starts nothing itself."""

    kind: str

    @abstractmethod
    def wrap(self, plan: Plan) -> list[str]:
        """argv whose process tree ends when its first process is killed."""

    @abstractmethod
    def probe(self) -> str:
        """Empty if this kind works here, else why not (one line)."""
