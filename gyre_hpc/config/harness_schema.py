"""Group `harness`: which agent program runs, and what it is told."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class HarnessConfig:
    """0, an empty text or list: the harness decides. What a harness has no choice for must stay at that."""

    name: str = "shell_agent"
    version: str = ""
    """Empty: the one that this project pins."""
    max_calls: int = 6
    """Calls of one agent before it must stop; 0: no limit but the harness's own. Not for codex and command."""
    context_tokens: int = 450
    """shell_agent compacts its history beyond this. Other harnesses take it for their model's window and compact before, by rules of
    their own. 0: model.max_context."""
    max_output_tokens: int = 64
    """Of one call; 0: what the harness asks for by itself. Codex asks for none."""
    tools: list[str] = field(default_factory=list)
    """claude_code: these tools alone; empty: its own choice."""
    bare: bool = False
    """claude_code: without its memory files, skills and reminders."""
    system_prompt: str = ""
    """claude_code: instead of its own; empty: its own."""
    command: Any = ""
    """command: program and arguments, a list or a string with the quotes of a shell. Placeholders: {base_url} {api_key} {instruction}
    {workspace} {home} {model}."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables laid over the harness's own; with command the same placeholders."""
    protocol: str = ""
    """command: chat_completions (also when empty), responses or messages."""
    readable: list[str] = field(default_factory=list)
    """command: files and folders that it must be able to read in the sandbox, its program first of all."""
