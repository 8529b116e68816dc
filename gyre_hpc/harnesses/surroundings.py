"""What every installed harness finds around it, whatever it is."""

import platform
from collections.abc import Mapping

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Start

PATH = "/usr/local/bin:/usr/bin:/bin"
LONGEST_SILENCE_MS = 7_200_000
"""Two hours: how long a harness may wait for bytes before it gives up by itself. Deadlines of executions are the runner's."""
_CPUS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def environment(start: Start, *, path: str = PATH, **own: str) -> dict[str, str]:
    """Its own variables, a plain terminal, temporary files where no other execution finds them (see `files`), and `harness.environment` above all."""
    plain = {"PATH": path, "HOME": start.home, "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": f"{start.home}/tmp"}
    return {**plain, **own, **{name: str(value) for name, value in start.options.get("environment", {}).items()}}


def files(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Its own files, and one that makes the folder for temporary ones."""
    return {"tmp/.keep": "", **(own or {})}


def no_command(instruction: str) -> str:
    """The instruction, never taken for one of the harness's own slash commands."""
    return "\n" + instruction if instruction.lstrip(" ").startswith("/") else instruction


def npm_cpu() -> str:
    """This machine in the names of npm's packages per platform. Raises UserError."""
    machine = platform.machine().lower()
    if machine not in _CPUS:
        raise UserError("harness.name", machine, "harnesses from npm exist for x86_64 and aarch64 only")
    return _CPUS[machine]
