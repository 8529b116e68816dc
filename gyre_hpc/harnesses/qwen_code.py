"""Qwen Code: Chat Completions, streamed. Says nothing in headers: its calls are told apart by prompts and tools.

It compacts in one call (all tools, an instruction at the end) or two (no tools, asks for a state snapshot), and puts an
assistant turn of its own into the new history that no model produced.
"""

import json
from collections.abc import Mapping
from typing import Any

from gyre_hpc.harnesses.base import MODEL, Harness, Installation, Installer, Launch, Start
from gyre_hpc.harnesses.place import program_of
from gyre_hpc.harnesses.reading import entries, last_text, tool_names
from gyre_hpc.harnesses.surroundings import LONGEST_SILENCE_MS, environment, files, no_command, npm_cpu

_NODE = "22.23.3"
_OF_MAIN_ONLY = {"get_goal", "update_goal"}
_COMPACTION = "produce the <state_snapshot> XML."


class QwenCode(Harness):
    """Needs a newer node than distributions have: one is installed beside it."""

    name = "qwen_code"
    version = "0.24.4"
    versions = ("0.24.4",)
    protocol = "chat_completions"
    finished_codes = frozenset({0, 53})
    """53: it used up its calls."""
    follows = frozenset({"max_calls", "max_output_tokens"})
    reserves_address_space = True
    least_context = 2000

    def installation(self, version: str) -> Installation:
        self._known(version)
        return Installation(
            installer=Installer.npm,
            packages=(f"@qwen-code/qwen-code@{version}", f"node-linux-{npm_cpu()}@{_NODE}"),
            program="node_modules/@qwen-code/qwen-code/cli-entry.js",
            licence="Apache-2.0; node: MIT",
            megabytes=330,
        )

    def launch(self, start: Start) -> Launch:
        assert start.installed is not None
        node = start.installed / "node_modules" / f"node-linux-{npm_cpu()}" / "bin" / "node"
        argv = [str(node), program_of(self, start), "--yolo", "--auth-type=openai", "--output-format=json"]
        if start.options.get("max_calls"):
            argv.append(f"--max-session-turns={start.options['max_calls']}")
        own = {
            "OPENAI_BASE_URL": f"{start.gateway_url}/v1",
            "OPENAI_API_KEY": start.api_key,
            "OPENAI_MODEL": MODEL,
            "QWEN_STREAM_IDLE_TIMEOUT_MS": str(LONGEST_SILENCE_MS),
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }
        return Launch(
            argv=(*argv, f"--prompt={no_command(start.instruction)}"),
            environment=environment(start, **own),
            readable=(start.installed,),
            files=files({".qwen/settings.json": _settings(start)}),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        users = [message for message in entries(body, "messages") if message.get("role") == "user"]
        if users and last_text(users[-1]).rstrip().endswith(_COMPACTION):
            return "compaction"
        tools = tool_names(body)
        if not tools:
            return "helper"
        return "main" if tools & _OF_MAIN_ONLY else "sub_agent"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return ""


def _settings(start: Start) -> str:
    generation: dict[str, Any] = {"timeout": LONGEST_SILENCE_MS, "contextWindowSize": int(start.options["context_tokens"])}
    if start.options["max_output_tokens"]:
        generation["samplingParams"] = {"max_tokens": int(start.options["max_output_tokens"])}
    settings = {
        "model": {"name": MODEL, "generationConfig": generation},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        # After its answer it would go through the conversation once more for things to remember, in calls of their own.
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False, "enableAutoSkill": False},
        # The one it brings along comes without the right to be executed.
        "tools": {"useBuiltinRipgrep": False},
    }
    return json.dumps(settings, indent=1) + "\n"
