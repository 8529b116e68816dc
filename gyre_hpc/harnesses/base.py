"""Harnesses: how an agent program that knows nothing of us is started, and how its calls are told apart. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One start of the harness."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    readable: tuple[Path, ...]
    """What the sandbox must let it read."""


class Harness(ABC):
    """One kind of harness."""

    name: str
    compaction_rewrites_history: bool = True
    finished_codes: frozenset[int] = frozenset({0})
    """Exit codes with which it ends by its own rules; after any other its result is `partial`."""

    @abstractmethod
    def launch(self, *, base_url: str, api_key: str, instruction: str, workspace: str, options: Mapping[str, Any]) -> Launch:
        """Command line and environment. `base_url` is http://host:port/e/<execution>/v1."""

    @abstractmethod
    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        """main, sub_agent, compaction or helper, from lower-case headers and the parsed body."""

    @abstractmethod
    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        """Name of the conversation inside the execution, empty if the harness does not tell."""
