"""The form of every machine: one entry, `handle(now, input) -> list[Effect]`.

Inputs are facts, effects are wishes; a shell (or the simulation) translates between them and the world and adds
no timeout, retry or choice of its own.

Rules that every machine and every shell keep:
  - `handle` is deterministic: no clock, dice, disk, socket or thread inside; `now` is monotonic seconds.
  - `Send` is one try and may be lost, doubled, delayed or overtaken. Machines send whole documents again (on a timer)
    until the answer they wait for arrives; receivers ignore a document whose number is not newer.
  - Every `Start(key, ...)` ends in exactly one `Finished(key)` or `Failed(key)`, unless `Stop(key)` was asked for
    first: then at most one, and the machine must not rely on it. `Progressed(key)` may come any number of times before.
  - Every `Persist(key, ...)` ends in `Persisted(key)` once durable, or in `Failed(key)`.
  - A crash loses all but what was persisted; a new machine gets `Restarted(records)` as its first input.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import msgspec


class Input(msgspec.Struct, frozen=True, tag=True):
    """Base of what a machine is told."""


class Received(Input, frozen=True, tag=True):
    """A message arrived. `sender` is a process name such as `cell-0`."""

    sender: str
    message: Any


class TimerFired(Input, frozen=True, tag=True):
    key: str


class Persisted(Input, frozen=True, tag=True):
    key: str


class Finished(Input, frozen=True, tag=True):
    """A started action ended well."""

    key: str
    result: Any = None


class Progressed(Input, frozen=True, tag=True):
    """A started action has something to tell before its end."""

    key: str
    item: Any = None


class Failed(Input, frozen=True, tag=True):
    """A started action or a Persist failed. `kind` is the class name of the error, e.g. `CellLost`."""

    key: str
    kind: str
    reason: str


class Restarted(Input, frozen=True, tag=True):
    """First input of a machine whose process was restarted: every record it persisted before, in order. They can be iterated once."""

    records: Iterable[Any] = ()


class Effect(msgspec.Struct, frozen=True, tag=True):
    """Base of what a machine wants done."""


class Send(Effect, frozen=True, tag=True):
    """Send one message to the process named `to`; one try within `deadline_s`."""

    to: str
    message: Any
    deadline_s: float = 5.0


class SetTimer(Effect, frozen=True, tag=True):
    """Fire `TimerFired(key)` after `after_s`; setting a key again moves it."""

    key: str
    after_s: float


class CancelTimer(Effect, frozen=True, tag=True):
    key: str


class Persist(Effect, frozen=True, tag=True):
    """Append `record` durably to this process's own log."""

    key: str
    record: Any


class Start(Effect, frozen=True, tag=True):
    """Begin an action (a Struct the shell knows). Its deadline is a field of the action."""

    key: str
    action: Any


class Stop(Effect, frozen=True, tag=True):
    """Cancel a started action."""

    key: str


class Note(Effect, frozen=True, tag=True):
    """An event for the run's event log: never awaited, never decides anything."""

    kind: str
    fields: dict[str, Any] = {}


class Machine(ABC):
    """Base of the five machines."""

    @abstractmethod
    def handle(self, now: float, input: Input) -> list[Effect]:
        """Take one fact at monotonic time `now` (seconds), return what to do, in this order."""
