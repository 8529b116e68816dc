"""Codex CLI: OpenAI Responses, the only protocol it speaks. Every call says in headers whose it is and what it is for."""

import json
from collections.abc import Mapping
from typing import Any

from gyre_hpc.harnesses.base import MODEL, Harness, Installation, Installer, Launch, Start
from gyre_hpc.harnesses.place import program_of
from gyre_hpc.harnesses.reading import json_header
from gyre_hpc.harnesses.surroundings import LONGEST_SILENCE_MS, PATH, environment, files, npm_cpu

_TARGETS = {"x64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}
_KEY = "GYRE_KEY"


class Codex(Harness):
    """Has no limit of calls or of output tokens of its own."""

    name = "codex"
    version = "0.171.0"
    versions = ("0.171.0",)
    protocol = "responses"
    reserves_address_space = True
    least_context = 2000

    def installation(self, version: str) -> Installation:
        self._known(version)
        return Installation(
            installer=Installer.npm,
            packages=(f"@openai/codex@{version}",),
            program=f"{_vendor()}/bin/codex",
            licence="Apache-2.0",
            megabytes=424,
        )

    def launch(self, start: Start) -> Launch:
        assert start.installed is not None
        argv = (program_of(self, start), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
        own = {_KEY: start.api_key, "CODEX_HOME": f"{start.home}/.codex"}
        return Launch(
            argv=(*argv, "--", start.instruction),
            environment=environment(start, path=f"{start.installed / _vendor()}/codex-path:{PATH}", **own),
            readable=(start.installed,),
            files=files({".codex/config.toml": _settings(start)}),
        )

    def role(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        kind = json_header(headers, "x-codex-turn-metadata").get("request_kind", "turn")
        if kind == "compaction":
            return "compaction"
        if kind != "turn":
            return "helper"
        return "sub_agent" if headers.get("x-openai-subagent") or headers.get("x-codex-parent-thread-id") else "main"

    def thread(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
        return headers.get("thread-id", "")


def _vendor() -> str:
    cpu = npm_cpu()
    return f"node_modules/@openai/codex-linux-{cpu}/vendor/{_TARGETS[cpu]}"


def _settings(start: Start) -> str:
    """config.toml. JSON strings are TOML strings."""
    window = int(start.options["context_tokens"])
    provider = {
        "name": "gyre",
        "base_url": f"{start.gateway_url}/v1",
        "env_key": _KEY,
        "wire_api": "responses",
        "stream_idle_timeout_ms": LONGEST_SILENCE_MS,
    }
    settings = {
        "model": MODEL,
        "model_provider": "gyre",
        "model_context_window": window,
        "model_auto_compact_token_limit": window * 9 // 10,
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
        "check_for_update_on_startup": False,
        # A tool that the model's server would have to carry out.
        "web_search": "disabled",
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    # A picture in a tool's result would be refused, and that ends a run of Codex.
    lines += ["[features]", "view_image = false"]
    lines += ["[analytics]", "enabled = false", "[history]", 'persistence = "none"', "[model_providers.gyre]"]
    return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]) + "\n"
