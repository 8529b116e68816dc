"""Every recorded request of a real harness is told apart as what it was."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.harnesses import HARNESSES, create_harness

REQUESTS = Path(__file__).resolve().parents[2] / "harness" / "requests"
KINDS = {
    "cc220": "claude_code", "cc332": "claude_code", "codex171": "codex", "qwen0244": "qwen_code", "opencode11833": "opencode",
    "mini246": "mini_swe_agent",
}  # fmt: skip
_CODEX = "01a2275f-e25f-7a31-b6b0-7316d8418360"
EXPECTED = {
    "cc220_01_title_helper": ("helper", "helper"),
    "cc220_02_main_first": ("main", "main"),
    "cc220_03_main_after_async_agent": ("main", "main"),
    "cc220_04_subagent": ("sub_agent", "aac6c84f8a598eb62"),
    "cc220_05_compaction": ("compaction", "main"),
    "cc220_06_post_compaction": ("main", "main"),
    "cc220_07_nonstream_fallback": ("main", "main"),
    "cc220_08_attribution_knobs": ("main", "main"),
    "cc220_09_roundtrip_last": ("main", "main"),
    "cc220_10_sub_compaction": ("compaction", "ac07455e2e033fd45"),
    "cc220_11_max_tokens_resume": ("main", "main"),
    "cc332_01_main": ("main", "main"),
    "codex171_01_main": ("main", "01a2275e-e483-7f10-839d-69768baf3cd3"),
    "codex171_02_subagent": ("sub_agent", "01a2275f-e654-7683-bbdd-c2b30df55489"),
    "codex171_03_compaction": ("compaction", _CODEX),
    "codex171_04_post_compaction": ("main", _CODEX),
    "codex171_05_duplicate_after_cut": ("main", "01a22761-b623-7481-943a-93da76d3fae1"),
    "mini246_01_main": ("main", "main"),
    "opencode11833_01_title": ("helper", "helper"),
    "opencode11833_02_main": ("main", "ses_dd89dc547ffeq0dqZ7brXvf9r4"),
    "opencode11833_03_subagent": ("sub_agent", "ses_dd89b002bffeoEIHeDDx9klEHv"),
    "opencode11833_04_compaction": ("compaction", "ses_dd89b1f4fffex4WD946jTdYy5L"),
    "opencode11833_05_post": ("main", "ses_dd89b1f4fffex4WD946jTdYy5L"),
    "qwen0244_01_main": ("main", ""),
    "qwen0244_02_subagent": ("sub_agent", ""),
    "qwen0244_03_compaction": ("compaction", ""),
    "qwen0244_03b_compaction2": ("compaction", ""),
    "qwen0244_04_post": ("main", ""),
}
"""File -> role and thread."""


def load(name: str) -> tuple[dict[str, str], dict[str, Any]]:
    request = json.loads((REQUESTS / f"{name}.json").read_text())
    return {key.lower(): value for key, value in request["headers"].items()}, request["body"]


def told(name: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> tuple[str, str]:
    harness = create_harness(KINDS[name.partition("_")[0]])
    return harness.role(headers, body), harness.thread(headers, body)


def test_every_recorded_request_has_an_expectation_and_every_known_version_a_request() -> None:
    assert {path.stem for path in REQUESTS.glob("*.json")} == set(EXPECTED)
    assert set(KINDS.values()) | {"shell_agent", "command"} == set(HARNESSES)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recorded_request_is_told_apart(name: str) -> None:
    assert told(name, *load(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", ["cc220_05_compaction", "cc220_10_sub_compaction", "qwen0244_03_compaction", "qwen0244_03b_compaction2"])
def test_without_its_instruction_a_compaction_is_none(name: str) -> None:
    """What looks like it in the middle of a conversation, in a tool's result for instance, is not it."""
    headers, body = load(name)
    body["messages"].append({"role": "user", "content": "go on"})
    assert told(name, headers, body)[0] in ("main", "sub_agent", "helper")


def test_a_codex_call_for_anything_else_is_a_helper() -> None:
    headers, body = load("codex171_01_main")
    headers["x-codex-turn-metadata"] = json.dumps({"request_kind": "memory"})
    assert told("codex171", headers, body)[0] == "helper"
    headers["x-codex-turn-metadata"] = "{"
    assert told("codex171", headers, body)[0] == "main"


@pytest.mark.parametrize("kind", sorted(HARNESSES))
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None, "input": 3, "tools": {}, "system": 1},
        {"messages": [], "input": [], "tools": []},
        {"messages": [1, {"role": "user"}], "tools": [1, {"function": 2}], "output_config": []},
        {"messages": [{"role": "user", "content": [1, {"type": "text"}, {"text": 4}]}], "output_config": {"format": 1}},
        {"messages": [{"content": None}, {"role": "system", "content": {"a": 1}}]},
    ],
)
def test_no_body_makes_a_rule_fail(kind: str, body: dict[str, Any]) -> None:
    harness = create_harness(kind)
    for headers in ({}, {"x-codex-turn-metadata": "[]", "x-claude-code-agent-id": "", "x-session-id": ""}):
        assert harness.role(headers, body) in ("main", "sub_agent", "compaction", "helper")
        assert isinstance(harness.thread(headers, body), str)


def test_prompts_of_claude_code_that_differ_in_the_nonce_alone_become_equal() -> None:
    def prompt(nonce: str) -> tuple[Message, ...]:
        billing = f"x-anthropic-billing-header: cc_version=2.1.220.{nonce}; cc_entrypoint=sdk-cli;"
        return (Message(role="system", content=f"{billing}\nYou are an agent.\nBe brief."), Message(role="user", content="Do it."))

    clean = create_harness("claude_code").clean
    first, other = prompt("6cb"), prompt("316")
    assert first != other
    assert clean(first) == clean(other) == (Message(role="system", content="You are an agent.\nBe brief."), first[1])
    alone = dataclasses.replace(first[0], content=first[0].content.partition("\n")[0])
    assert clean((alone, first[1])) == (first[1],)


@pytest.mark.parametrize("kind", sorted(HARNESSES))
def test_nothing_else_is_cleaned_away(kind: str) -> None:
    messages = (
        Message(role="system", content="You are.\nx-anthropic-billing-header: quoted"),
        Message(role="user", content="x-anthropic-billing-header: said by a user"),
    )
    assert create_harness(kind).clean(messages) == messages
    assert create_harness(kind).clean(()) == ()
