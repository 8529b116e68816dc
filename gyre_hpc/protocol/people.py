"""What people order of a live run, and the answer: files of commands/ in the run folder, or a message to supervisor-0.

Both ways lead to the same document; an order that comes by both, or twice, is carried out once.
"""

import enum

import msgspec


class CommandKind(enum.Enum):
    stop = "stop"
    """End the run in good order; nothing follows by itself."""
    stacks = "stacks"
    """Have a process, and those that it started itself, write their Python stacks."""
    hold = "hold"
    """Do not end or start a cell again, whatever the controller orders, so that it can be looked at."""
    release = "release"
    """No longer."""


class Wish(msgspec.Struct, frozen=True):
    """The whole of commands/<id>.json."""

    kind: CommandKind
    attempt: int = 0
    """The one that it is meant for: another one answers that it was not carried out. 0: the one that lives when it is written."""
    process: str = ""
    """Of stacks, hold and release."""
    reason: str = ""
    """For people: who wants it, and why."""


class Command(msgspec.Struct, frozen=True, tag="command"):
    """A wish with its name, as supervisor-0 takes it."""

    id: str
    """<unix ms>-<random>."""
    wish: Wish
    is_older: bool = False
    """It was written before this attempt began, by the clock that stamps files there."""


class Unreadable(msgspec.Struct, frozen=True):
    """A file of commands/ that holds no order."""

    id: str
    reason: str


class Answer(msgspec.Struct, frozen=True):
    """The whole of commands/<id>.ack.json, written once."""

    attempt: int
    """That answered."""
    is_done: bool
    text: str
    """What was done, or why not."""
    files: str = ""
    """Of stacks: where they are written, a pattern below the run folder."""
    time: float = 0.0
    """Unix seconds."""
    kind: str = ""
    """Of the order; empty where it could not be read."""
