"""opencode: Chat Completions, streamed. Sessions name themselves and their parent in headers; titles and compaction have no tools."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.harnesses.base import MODEL, Harness, Installation, Installer, Launch, Start
from gyre_hpc.harnesses.place import program_of
from gyre_hpc.harnesses.reading import system_text
from gyre_hpc.harnesses.surroundings import environment, files, npm_cpu

_KEY = "GYRE_KEY"
_FOLDER = ".config/opencode"
_INSTRUCTION = ".instruction"
_TITLE = "title generator"


class OpenCode(Harness):
    """A self-contained program."""

    name = "opencode"
    version = "1.18.33"
    versions = ("1.18.33",)
    protocol = "chat_completions"
    follows = frozenset({"max_calls", "max_output_tokens"})
    reserves_address_space = True
    least_context = 2000

    def installation(self, version: str) -> Installation:
        self._known(version)
        return Installation(
            installer=Installer.npm,
            packages=(f"opencode-ai@{version}",),
            program=f"node_modules/opencode-linux-{npm_cpu()}/bin/opencode",
            licence="MIT",
            megabytes=354,
        )

    def launch(self, start: Start) -> Launch:
        assert start.installed is not None
        # On its command line it would put the instruction into quotes; from its input it takes it as it is.
        argv = ("/bin/sh", "-c", f'exec "$0" "$@" <"$HOME/{_INSTRUCTION}"', program_of(self, start), "run", "--auto", "--format=json")
        own = {
            _KEY: start.api_key,
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        return Launch(
            argv=argv,
            environment=environment(start, **own),
            readable=(start.installed,),
            files=files(
                {
                    f"{_FOLDER}/opencode.json": _settings(start),
                    # At each start it would fetch a package for plugins that nobody uses here.
                    f"{_FOLDER}/.npmrc": "offline=true\n",
                    _INSTRUCTION: start.instruction,
                }
            ),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        if not body.get("tools"):
            return "helper" if _is_title(body) else "compaction"
        return "sub_agent" if headers.get("x-parent-session-id") else "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return "helper" if _is_title(body) else headers.get("x-session-id", "")

    def clean(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """An answer whose connection broke stays in its history as an assistant turn without anything in it."""
        return tuple(turn for turn in messages if turn.role != "assistant" or turn.content or turn.tool_calls or turn.reasoning)


def _is_title(body: Mapping[str, Any]) -> bool:
    return not body.get("tools") and _TITLE in system_text(body)[:200]


def _settings(start: Start) -> str:
    window = int(start.options["context_tokens"])
    # It demands both numbers, and keeps room for an answer before it compacts.
    limit = {"context": window, "output": int(start.options["max_output_tokens"]) or window // 4}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{start.gateway_url}/v1", "apiKey": f"{{env:{_KEY}}}", "timeout": False},
        "models": {MODEL: {"limit": limit}},
    }
    settings: dict[str, Any] = {
        "model": f"gyre/{MODEL}",
        "small_model": f"gyre/{MODEL}",
        "provider": {"gyre": provider},
        "autoupdate": False,
        "share": "disabled",
    }
    if start.options["max_calls"]:  # its model is told to come to an end; it is not stopped
        settings["agent"] = {name: {"steps": int(start.options["max_calls"])} for name in ("build", "general")}
    return json.dumps(settings, indent=1) + "\n"
