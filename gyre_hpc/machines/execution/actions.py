"""What the execution machine asks the runner to do, and what comes back."""

import msgspec

from gyre_hpc.protocol.to_runner import Begin


class PrepareWorkspace(msgspec.Struct, frozen=True):
    """Make the task's workspace anew. Failed = our fault."""

    begin: Begin


class RunHarness(msgspec.Struct, frozen=True):
    """Run the harness in its sandbox until it and everything it started is gone. Finished with a HarnessEnd."""

    begin: Begin
    gateway: str
    """Base URL of the shard the execution belongs to."""


class StopHarness(msgspec.Struct, frozen=True):
    """Finished at once; the end is told by RunHarness. `force`: SIGKILL to the whole tree, else SIGTERM to the harness."""

    execution: str
    force: bool


class ScoreWorkspace(msgspec.Struct, frozen=True):
    """Look at the workspace. Progressed once when its turn came. Finished with Scored or Unscorable; Failed = our fault."""

    begin: Begin


class RemoveWorkspace(msgspec.Struct, frozen=True):
    """Delete the workspace, whatever is in it."""

    execution: str


class SweepWorkspaces(msgspec.Struct, frozen=True):
    """Delete what a runner that died left behind; once, before anything else."""


class MeasureUsage(msgspec.Struct, frozen=True):
    """Finished with the CPU seconds (float) this process has used."""


class HarnessEnd(msgspec.Struct, frozen=True):
    """How a harness ended."""

    code: int
    """Exit code; negative = killed by that signal."""
    started: bool
    """The sandbox came as far as executing the harness."""
    finished: bool
    """It ended by its own rules."""
    limit: str = ""
    """Limit it broke (`processes`, `memory`), if any."""
    cpu_s: float = 0.0
    tail: str = ""
    """Last 4 KB of its output."""


class Scored(msgspec.Struct, frozen=True):
    value: float
    passed: bool
    parts: dict[str, float] = {}


class Unscorable(msgspec.Struct, frozen=True):
    """The task's rules give no score here."""

    reason: str
