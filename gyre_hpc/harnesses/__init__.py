"""Harnesses: agent programs that know nothing of us. One file per kind."""

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.harnesses.claude_code import ClaudeCode
from gyre_hpc.harnesses.codex import Codex
from gyre_hpc.harnesses.command import Command
from gyre_hpc.harnesses.mini_swe_agent import MiniSweAgent
from gyre_hpc.harnesses.opencode import OpenCode
from gyre_hpc.harnesses.qwen_code import QwenCode
from gyre_hpc.harnesses.shell_agent import ShellAgent

HARNESSES: dict[str, type[Harness]] = {
    kind.name: kind for kind in (ShellAgent, ClaudeCode, Codex, QwenCode, OpenCode, MiniSweAgent, Command)
}


def create_harness(name: str) -> Harness:
    """The harness of `harness.name`. Raises UserError for an unknown name."""
    if name not in HARNESSES:
        raise UserError("harness.name", name, f"no such harness; known: {', '.join(HARNESSES)}")
    return HARNESSES[name]()
