"""Lines between a supervisor and a process that several cells share: orders on its stdin, endings on its stdout.

One JSON object a line. EOF on stdin ends the process in order, as it does every child.
"""

import enum

import msgspec


class Verb(enum.Enum):
    birth = "birth"
    terminate = "terminate"
    """As SIGTERM: end in order."""
    kill = "kill"
    """As SIGKILL: what it was doing is dropped where it stands, its connections are cut."""


class CellOrder(msgspec.Struct, frozen=True):
    """What is wanted of one cell. One for a cell that is gone changes nothing."""

    verb: Verb
    cell: str
    incarnation: int


class CellEnding(msgspec.Struct, frozen=True):
    """A cell is gone, and nothing of it is left in the process."""

    cell: str
    incarnation: int
    code: int
    """Exit code, as if it had been a process; negative = ended by that signal."""


def line_of(said: CellOrder | CellEnding) -> bytes:
    return msgspec.json.encode(said) + b"\n"


def read_order(line: bytes) -> CellOrder:
    """Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=CellOrder)


def read_ending(line: bytes) -> CellEnding:
    """Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=CellEnding)
