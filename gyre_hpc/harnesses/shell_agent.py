"""How the shell_agent program is started and how its calls are told apart.

The program starts with `-E -s -S`: no site-packages, no environment of ours; 20 ms of CPU instead of 90.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import Harness, Launch, Start

_PROGRAM = Path(__file__).resolve().parent / "program" / "shell_agent_program.py"
_SUMMARISE = "Summarise what you know."


class ShellAgent(Harness):
    """The harness of the quickstart."""

    name = "shell_agent"
    version = "1"
    versions = ("1",)
    protocol = "chat_completions"
    follows = frozenset({"max_calls", "max_output_tokens", "stream"})
    finished_codes = frozenset({0, 3})
    """3: it used up its calls, which is its own rule."""

    def check(self, options: Mapping[str, Any]) -> None:
        super().check(options)
        for name in ("max_calls", "max_output_tokens"):
            if not options[name]:
                raise UserError(f"harness.{name}", 0, "this harness has no limit of its own; name one above 0")

    def launch(self, start: Start) -> Launch:
        """Options: max_calls, context_tokens, max_output_tokens (ints), stream (bool); all optional."""
        python = Path(sys.base_prefix).resolve() / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        switches: list[str] = []
        for name in ("max_calls", "context_tokens", "max_output_tokens"):
            if name in start.options:
                switches += [f"--{name.replace('_', '-')}", str(int(start.options[name]))]
        if start.options.get("stream"):
            switches.append("--stream")
        return Launch(
            argv=(str(python), "-E", "-s", "-S", "-B", str(_PROGRAM), *switches, start.instruction),
            environment={
                "OPENAI_BASE_URL": f"{start.gateway_url}/v1",
                "OPENAI_API_KEY": start.api_key,
                "PATH": "/usr/bin:/bin",
                "HOME": start.home,
                **start.options.get("environment", {}),
            },
            readable=(Path(sys.base_prefix).resolve(), _PROGRAM.parent),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        messages = body.get("messages") or [{}]
        if messages[-1].get("role") == "user" and messages[-1].get("content") == _SUMMARISE:
            return "compaction"
        return "sub_agent" if self.thread(headers, body).startswith("sub-") else "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return headers.get("x-agent-id", "")
