"""Harnesses: agent programs that know nothing of us. One file per kind."""

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.harnesses.shell_agent import ShellAgent

_HARNESSES: dict[str, type[Harness]] = {"shell_agent": ShellAgent}


def create_harness(name: str) -> Harness:
    """The harness of `harness.name`. Raises UserError for an unknown name."""
    if name not in _HARNESSES:
        raise UserError("harness.name", name, f"no such harness; known: {', '.join(_HARNESSES)}")
    return _HARNESSES[name]()
