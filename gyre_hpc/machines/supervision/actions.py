"""What the supervision machine asks its shell to do, and what comes back."""

import msgspec

from gyre_hpc.protocol.people import Answer
from gyre_hpc.protocol.supervision import Directory


class SpawnProcess(msgspec.Struct, frozen=True):
    """Start one child and stay until it is gone. Finished with its exit code (int; negative = killed by that signal),
    Failed if it could not be started."""

    process: str
    incarnation: int
    part: int = 0
    """Of a cell over several nodes: which of its nodes this is."""
    rendezvous: str = ""
    """host:port where part 0 of the cell listens; empty for part 0 and for everything within one node."""


class TerminateProcess(msgspec.Struct, frozen=True):
    """Ask a child to end (SIGTERM). Finished at once; its end is told by SpawnProcess."""

    process: str
    incarnation: int


class DumpStacks(msgspec.Struct, frozen=True):
    """Have a child, and those that it started itself, write their Python stacks. Finished once they are written, which
    takes seconds at most, with the pids of those that listened (tuple of int)."""

    process: str
    incarnation: int


class KillProcess(msgspec.Struct, frozen=True):
    """End a child and its process group now (SIGKILL). Finished at once."""

    process: str
    incarnation: int


class MirrorDirectory(msgspec.Struct, frozen=True):
    """Write the directory into the run folder for people and tools."""

    directory: Directory


class CheckAttempts(msgspec.Struct, frozen=True):
    """Finished with the highest attempt (int) claimed in the run folder."""


class ReadCommands(msgspec.Struct, frozen=True):
    """Finished with what people ordered through the run folder and was not answered yet: tuple of Command or Unreadable, oldest first.
    Leaves a sign of life there too (attempts/<n>/alive)."""


class WriteAnswer(msgspec.Struct, frozen=True):
    """Write the answer to an order beside it."""

    id: str
    answer: Answer


class EndRun(msgspec.Struct, frozen=True):
    """Every child is gone: end this process with `exit_code`."""

    exit_code: int
    reason: str
