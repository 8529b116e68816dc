"""Prompts are, id for id, those of transformers: for templates of every manner and the real Qwen3."""

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import transformers

from gyre_hpc.chat.base import Message
from gyre_hpc.chat.folder import hf_format
from gyre_hpc.chat.hf_format import HfFormat
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.turns import as_dicts
from gyre_hpc.config.model_schema import ModelConfig
from tests.fakes.chat_folders import TEMPLATES, tokenizer_folder
from tests.fakes.conversations import ARGUMENTS, CONVERSATIONS, TOOLS, as_openai

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gyre_hpc"
QWEN3 = Path(os.environ.get("GYRE_QWEN3_TOKENIZER") or CACHE / "tokenizers" / "qwen3")
MISSING = (
    ""
    if (QWEN3 / "tokenizer.json").is_file()
    else f"not in {QWEN3}; run tests/fetch/qwen3_tokenizer.sh FOLDER and set GYRE_QWEN3_TOKENIZER"
)
ADAPTED = "strict"
"""Takes no system turn in mid-conversation; transformers then raises, we adapt."""


@cache
def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(str(folder))


@cache
def ours(folder: Path, arguments: str, guard: bool = False) -> HfFormat:
    return hf_format(ModelConfig(tokenizer=str(folder), template="own", template_args=json.loads(arguments), guard_marks=guard), folder)


def both(
    folder: Path, messages: list[Message], tools: list[dict[str, Any]], arguments: dict[str, Any], **more: Any
) -> tuple[list[int], list[int]]:
    chat = ours(folder, json.dumps(arguments))
    wanted = theirs(folder).apply_chat_template(
        as_openai(messages), tools=tools or None, add_generation_prompt=True, tokenize=True, return_dict=False, **arguments, **more
    )
    return chat.render(messages, tools), wanted


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize(
    ("name", "talk"), [(name, talk) for name in TEMPLATES for talk in CONVERSATIONS if name != ADAPTED or "system turns" not in talk]
)
def test_ids_are_those_of_transformers(name: str, tools: list[dict[str, Any]], talk: str) -> None:
    got, wanted = both(tokenizer_folder(name), CONVERSATIONS[talk], tools, {})
    assert got == wanted


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=json.dumps)
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
def test_ids_are_those_of_transformers_with_the_real_qwen3(
    needs: Callable[..., None], arguments: dict[str, Any], tools: list[dict[str, Any]]
) -> None:
    needs("qwen3 tokenizer", MISSING)
    for messages in CONVERSATIONS.values():
        got, wanted = both(QWEN3, messages, tools, arguments)
        assert got == wanted


def test_the_real_qwen3_extends_recorded_answers_and_forgets_thinking(needs: Callable[..., None]) -> None:
    needs("qwen3 tokenizer", MISSING)
    chat = ours(QWEN3, "{}")
    before, answer, result = CONVERSATIONS["a call and its result"][:2], *CONVERSATIONS["a call and its result"][2:]
    whole = chat.render([*before, answer, result], TOOLS)
    prompt, suffix = chat.render(before, TOOLS), chat.render_suffix([result], ended=True)
    assert whole[: len(prompt)] == prompt
    assert whole[-len(suffix) :] == suffix
    sampled = whole[len(prompt) : -len(suffix)]
    parsed = chat.parse(sampled)
    assert sampled[-1] == chat.stop_ids[0]
    assert (parsed.content, parsed.reasoning, parsed.malformed) == ("I look.", "The file first.", ())
    assert [call.name for call in parsed.tool_calls] == ["shell"]
    assert chat.notices == ()


def test_sampled_pieces_that_encode_otherwise_stay_as_they_were_with_the_real_qwen3(needs: Callable[..., None]) -> None:
    needs("qwen3 tokenizer", MISSING)
    chat = ours(QWEN3, "{}")
    pieces = [id for piece in ("hel", "lo", " wor", "ld") for id in chat.tokenizer.encode(piece)]
    assert pieces == [49122, 385, 4099, 507]
    assert chat.tokenizer.encode(chat.tokenizer.decode(pieces)) == [14990, 1879]
    assert chat.parse([*pieces, chat.stop_ids[0]]).content == "hello world"


@pytest.mark.parametrize("talk", CONVERSATIONS)
def test_guarded_prompts_hold_the_marks_that_transformers_leaves_when_it_sanitizes(talk: str) -> None:
    """Which pieces spell a quoted mark differs: ours is cut behind its first letter."""
    folder = tokenizer_folder("coder")
    chat = ours(folder, "{}", guard=True)
    tokenizer = theirs(folder)
    wanted = tokenizer.apply_chat_template(
        as_openai(CONVERSATIONS[talk]), add_generation_prompt=True, tokenize=True, return_dict=False, sanitize_control_tokens=True
    )
    got = chat.render(CONVERSATIONS[talk], [])
    marks = set(chat.tokenizer.special.values())
    assert [id for id in got if id in marks] == [id for id in wanted if id in marks]
    assert chat.tokenizer.decode(got) == tokenizer.decode(wanted)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}\n  {% if loop.index0 == 1 %}{% break %}{% endif %}\n{{ m | tojson }}\n{% endfor %}",
        "{% generation %}said {{ messages[0].content }}{% endgeneration %}{{ bos_token }}|{{ eos_token }}",
        "{{ messages | map(attribute='content') | join('|') }}{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}{{ dict(a=1) | tojson }}",
        "{{ tools | tojson(indent=2) }}{{ {'b': '<&>\N{LATIN SMALL LETTER E WITH ACUTE}', 'a': 1} | tojson(ensure_ascii=true) }}{{ messages[0].nothing }}",
        "{{ messages[0].content.split('w')[0].strip().upper() }}{{ messages[-1].reasoning_content or 'none' }}{{ documents is none }}",
    ],
)
def test_what_templates_may_use_works_as_in_transformers(source: str) -> None:
    tokenizer = theirs(tokenizer_folder("coder"))
    messages = CONVERSATIONS["a call and its result"]
    wanted = tokenizer.apply_chat_template(
        as_openai(messages), tools=TOOLS, chat_template=source, tokenize=False, add_generation_prompt=True
    )
    template = ChatTemplate(source, variables={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    assert template.render(as_dicts(messages), TOOLS) == wanted


def test_a_template_tells_our_clocks_time() -> None:
    template = ChatTemplate("{{ strftime_now('%Y') }}", variables={}, now=lambda: 4e8)
    assert template.render([{"role": "user", "content": ""}], []) == "1982"
    assert template.tells_time


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{% set ns = namespace(_a=1) %}",
        "{{ 1 // 0 }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at.all }}",
    ],
)
def test_a_template_that_refuses_or_reaches_out_gives_a_value_error(source: str) -> None:
    with pytest.raises(ValueError, match="refuses"):
        ChatTemplate(source, variables={}).render([{"role": "user", "content": "x"}], [])
