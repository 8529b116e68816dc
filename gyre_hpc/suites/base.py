"""Task suites: where tasks come from and how a workspace is scored. Torch-free."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task, fully described; the same (split, index) is always the same task."""

    suite: str
    split: str
    """`train` or `heldout`."""
    index: int
    family: str
    instruction: str
    """What the agent is told."""
    files: dict[str, str] = field(default_factory=dict)
    """Workspace at the start: relative path -> text."""
    secret: dict[str, str] = field(default_factory=dict)
    """What only the checker knows; never enters the workspace."""
    delegates: bool = False
    """The harness's rule hands part of it to a sub-agent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """`value` = fraction of requirements met, 0..1; `passed` = all of them."""

    value: float
    passed: bool
    parts: dict[str, float] = field(default_factory=dict)


class Suite(ABC):
    """A source of tasks with their rules."""

    name: str

    @abstractmethod
    def task(self, split: str, index: int) -> Task:
        """Raises ValueError for an unknown split or a negative index."""

    @abstractmethod
    def score(self, task: Task, workspace: Path) -> Score:
        """Look at a workspace that nothing changes any more. Never follows links out of it, never runs what is in it
        without the sandbox. Raises OSError for what is our fault (infra_error), never for what the agent did."""
