"""Harnesses: how an agent program that knows nothing of us is started, and how its calls are told apart. Pure."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.volatile import canonical_form

MODEL = "gyre-model"
"""Name under which every harness asks for the model that is being trained."""
_FOLLOWED_BY_ALL = frozenset({"name", "version", "environment", "context_tokens"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One start of the harness."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    readable: tuple[Path, ...]
    """What the sandbox must let it read."""
    files: dict[str, str] = field(default_factory=dict)
    """Path below its home -> content; written before it starts."""


class Installer(enum.Enum):
    """Where a harness comes from."""

    bundled = "bundled"
    npm = "npm"
    pip = "pip"


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """How a harness gets into the cache, on request. Nothing of it is part of this project."""

    installer: Installer
    packages: tuple[str, ...] = ()
    """Pinned, in the installer's own notation."""
    program: str = ""
    """What is started, relative to the installed folder."""
    licence: str = ""
    megabytes: int = 0
    """Disk it takes, about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a harness is started with."""

    gateway_url: str
    """http://host:port/e/<execution>; the protocol's own path follows it."""
    api_key: str
    instruction: str
    workspace: str
    """Its working directory, as the process sees it."""
    home: str
    """Its HOME, as the process sees it; never inside the workspace."""
    installed: Path | None = None
    """Folder of its installation; None for bundled ones."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Group `harness` of the configuration, by field."""


class Harness(ABC):
    """One kind of harness."""

    name: str
    version: str
    """Default of `harness.version`."""
    versions: tuple[str, ...]
    """Those whose rules are known and tested."""
    protocol: str
    """chat_completions, responses or messages: what it speaks."""
    compaction_rewrites_history: bool = True
    finished_codes: frozenset[int] = frozenset({0})
    """Exit codes with which it ends by its own rules; after any other its result is `partial`."""

    follows: frozenset[str] = frozenset()
    """Fields of group `harness` that change how it is started, beside those that every harness follows."""
    reserves_address_space: bool = False
    """Its runtime reserves far more address space than it uses; only the memory in use can be limited."""
    volatile: tuple[str, ...] = ()
    """Patterns of what its texts say otherwise in each process, beside what is looked for in all texts (volatile.py)."""
    least_context: int = 0
    """Tokens that its first request alone takes with any tokenizer; in a smaller window it ends before it begins."""

    def installation(self, version: str) -> Installation:
        """What `gyre harness install` fetches. Raises UserError for a version it does not know."""
        self._known(version)
        return Installation(installer=Installer.bundled)

    def version_of(self, options: Mapping[str, Any]) -> str:
        """`harness.version`, or what is pinned here when that is empty."""
        return str(options.get("version") or self.version)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises UserError for an option that this harness cannot follow. `options`: group `harness`, by field."""
        self._known(self.version_of(options))
        for name, value in options.items():
            if value and name not in self.follows | _FOLLOWED_BY_ALL:
                empty = type(value)()
                raise UserError(f"harness.{name}", value, f"{self.name} has no such choice; leave it at {empty!r}")

    def _known(self, version: str) -> None:
        if version not in self.versions:
            raise UserError("harness.version", version, f"{self.name} is known in: {', '.join(self.versions)}")

    @abstractmethod
    def launch(self, start: Start) -> Launch:
        """Command line, environment and files."""

    @abstractmethod
    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        """main, sub_agent, compaction or helper, from lower-case headers and the parsed body."""

    @abstractmethod
    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        """Name of the conversation inside the execution, empty if the harness does not tell."""

    def canonical(self) -> Callable[[str], str]:
        """text -> the text without what differs between two processes that do the same."""
        return canonical_form(self.volatile)

    def clean(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Without what is on the wire only (a nonce in the first line, ...): it would keep equal prompts from sharing a prefix."""
        return tuple(messages)
