"""Claude Code: Anthropic Messages. Proprietary: fetched on request, never part of this project.

Sub-agents name themselves in a header; compaction is known by its instruction alone (same headers, same tools, same prefix).
A first system line with a nonce of the execution is dropped: it would keep equal prompts from sharing their first tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.harnesses.base import MODEL, Harness, Installation, Installer, Launch, Start
from gyre_hpc.harnesses.place import program_of
from gyre_hpc.harnesses.reading import entries, last_text
from gyre_hpc.harnesses.surroundings import LONGEST_SILENCE_MS, environment, files, no_command, npm_cpu

_AGENT = "x-claude-code-agent-id"
_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
_BILLING = "x-anthropic-billing-header:"
_MEGABYTES = {"2.1.220": 263, "2.1.332": 384}


class ClaudeCode(Harness):
    """`harness.tools`, `harness.bare` and `harness.system_prompt` make its first request small enough for tiny models."""

    name = "claude_code"
    version = "2.1.220"
    versions = ("2.1.220", "2.1.332")
    protocol = "messages"
    follows = frozenset({"max_calls", "max_output_tokens", "tools", "bare", "system_prompt"})
    reserves_address_space = True
    least_context = 500  # with all of its own texts and tools many times that

    def installation(self, version: str) -> Installation:
        self._known(version)
        return Installation(
            installer=Installer.npm,
            packages=(f"@anthropic-ai/claude-code@{version}",),
            program=f"node_modules/@anthropic-ai/claude-code-linux-{npm_cpu()}/claude",
            licence="proprietary, Anthropic's terms (LICENSE.md of the package)",
            megabytes=_MEGABYTES[version],
        )

    def launch(self, start: Start) -> Launch:
        options = start.options
        argv = [program_of(self, start), "--print", "--dangerously-skip-permissions", "--output-format=json"]
        if options.get("bare"):
            argv.append("--bare")
        if options.get("tools"):
            argv.append(f"--tools={','.join(options['tools'])}")
        if options.get("system_prompt"):
            argv.append(f"--system-prompt={options['system_prompt']}")
        if options.get("max_calls"):
            argv.append(f"--max-turns={options['max_calls']}")
        assert start.installed is not None
        return Launch(
            argv=(*argv, "--", no_command(start.instruction)), environment=_variables(start), readable=(start.installed,), files=files()
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        if _is_helper(body):
            return "helper"
        if _is_compaction(body):
            return "compaction"
        return "sub_agent" if headers.get(_AGENT) else "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return headers.get(_AGENT) or ("helper" if _is_helper(body) else "main")

    def clean(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if not messages or messages[0].role != "system" or not messages[0].content.startswith(_BILLING):
            return tuple(messages)
        rest = messages[0].content.partition("\n")[2].lstrip("\n")
        return (*([dataclasses.replace(messages[0], content=rest)] if rest else []), *messages[1:])


def _variables(start: Start) -> dict[str, str]:
    silence, window = str(LONGEST_SILENCE_MS), str(start.options["context_tokens"])
    output = start.options["max_output_tokens"]
    return environment(
        start,
        ANTHROPIC_BASE_URL=start.gateway_url,
        **({"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(output)} if output else {}),
        # The bare mode knows no bearer tokens.
        **{"ANTHROPIC_API_KEY" if start.options.get("bare") else "ANTHROPIC_AUTH_TOKEN": start.api_key},
        ANTHROPIC_MODEL=MODEL,
        ANTHROPIC_DEFAULT_OPUS_MODEL=MODEL,
        ANTHROPIC_DEFAULT_SONNET_MODEL=MODEL,
        ANTHROPIC_DEFAULT_HAIKU_MODEL=MODEL,
        CLAUDE_CODE_MAX_CONTEXT_TOKENS=window,
        # Without it compaction waits for an error of the server.
        CLAUDE_CODE_AUTO_COMPACT_WINDOW=window,
        CLAUDE_CODE_ATTRIBUTION_HEADER="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        # Without it flags that skip permissions are refused to root.
        IS_SANDBOX="1",
        API_TIMEOUT_MS=silence,
        CLAUDE_STREAM_IDLE_TIMEOUT_MS=silence,
        API_FORCE_IDLE_TIMEOUT="0",
    )


def _is_helper(body: Mapping[str, Any]) -> bool:
    """Titles and the like: an answer of a fixed form, no tools."""
    config = body.get("output_config")
    wanted = config.get("format") if isinstance(config, Mapping) else None
    return not body.get("tools") and isinstance(wanted, Mapping) and wanted.get("type") == "json_schema"


def _is_compaction(body: Mapping[str, Any]) -> bool:
    users = [message for message in entries(body, "messages") if message.get("role") == "user"]
    return bool(users) and last_text(users[-1]).lstrip().startswith(_COMPACTION)
