"""Any command line. Placeholders: {base_url} {api_key} {instruction} {workspace} {home} {model}; other braces stay as they are.

`harness.command` is a list, or one string that is split as a shell would; no shell runs it. Secrets belong into
`harness.environment`, which takes the same placeholders: command lines are public on a machine.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.errors import UserError
from gyre_hpc.harnesses.base import MODEL, Harness, Launch, Start
from gyre_hpc.harnesses.surroundings import environment, files

PROTOCOLS = ("chat_completions", "responses", "messages")
_PLACEHOLDER = re.compile(r"\{(base_url|api_key|instruction|workspace|home|model)\}")


class Command(Harness):
    """Nothing is known of it: every call is main, and no call names its conversation."""

    name = "command"
    version = "1"
    versions = ("1",)
    protocol = "chat_completions"
    follows = frozenset({"command", "protocol", "readable"})
    reserves_address_space = True

    def check(self, options: Mapping[str, Any]) -> None:
        super().check(options)
        words(options.get("command"))
        if options.get("protocol") and options["protocol"] not in PROTOCOLS:
            raise UserError("harness.protocol", options.get("protocol"), f"one of: {', '.join(PROTOCOLS)}")
        for path in options.get("readable", ()):
            if not Path(path).is_absolute():
                raise UserError("harness.readable", path, "name absolute paths")

    def launch(self, start: Start) -> Launch:
        values = {
            # Clients of Messages put /v1 in front of the path themselves.
            "base_url": start.gateway_url if start.options.get("protocol") == "messages" else f"{start.gateway_url}/v1",
            "api_key": start.api_key,
            "instruction": start.instruction,
            "workspace": start.workspace,
            "home": start.home,
            "model": MODEL,
        }
        return Launch(
            argv=tuple(_filled(word, values) for word in words(start.options.get("command"))),
            environment={name: _filled(value, values) for name, value in environment(start).items()},
            readable=tuple(Path(path) for path in start.options.get("readable", ())),
            files=files(),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return ""


def words(command: Any) -> list[str]:
    """The command line as a list. Raises UserError."""
    remedy = "name a program and its arguments: a list, or a string with the quotes of a shell"
    try:
        found = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise UserError("harness.command", command, f"{error}; {remedy}") from error
    if not isinstance(found, list | tuple) or not found or not all(isinstance(word, str | int | float) for word in found):
        raise UserError("harness.command", command, remedy)
    return [str(word) for word in found]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)
