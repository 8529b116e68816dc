"""From the keys of `model.` to a chat format; what does not fit is said with field, value and remedy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.chat.hf_format import HfFormat
from gyre_hpc.config.model_schema import ModelConfig, ParserKind
from gyre_hpc.errors import UserError
from tests.fakes.chat_folders import CODER, FORGETS, tokenizer_folder

CALLS = {
    ParserKind.hermes: '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
    ParserKind.qwen3_coder: "<tool_call><function=f></function></tool_call>",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(tokenizer_folder("coder"), tmp_path / "tokenizer"))


def changed(folder: Path, **values: Any) -> ModelConfig:
    """With these values in tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return ModelConfig(tokenizer=str(folder), template="own")


def parsed(model: ModelConfig, text: str) -> tuple[int, int]:
    chat = create_chat_format(model)
    answer = chat.parse(chat.tokenizer.encode(text))
    return len(answer.tool_calls), len(answer.malformed)


def test_the_parser_is_taken_from_the_template_unless_it_is_named() -> None:
    coder = ModelConfig(tokenizer=str(tokenizer_folder("coder")), template="own")
    forgets = ModelConfig(tokenizer=str(tokenizer_folder("forgets")), template="own")
    for kind, text in CALLS.items():
        assert parsed(coder, text) == ((1, 0) if kind is ParserKind.qwen3_coder else (0, 1))
        assert parsed(forgets, text) == ((1, 0) if kind is ParserKind.hermes else (0, 1))
        assert parsed(ModelConfig(tokenizer=coder.tokenizer, template="own", parser=kind), text) == (1, 0)
        assert parsed(ModelConfig(tokenizer=coder.tokenizer, template="own", parser=ParserKind.plain), text) == (0, 0)


def test_a_template_comes_from_a_file_of_its_own_before_the_tokenizers_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(FORGETS)
    assert parsed(ModelConfig(tokenizer=str(folder), template="own"), CALLS[ParserKind.hermes]) == (1, 0)


def test_of_several_templates_the_one_for_tools_is_taken_when_there_are_tools(folder: Path) -> None:
    named = [{"name": "default", "template": CODER}, {"name": "tool_use", "template": "{{- '<|im_start|>tools\n' }}" + CODER}]
    chat = create_chat_format(changed(folder, chat_template=named))
    tools = [{"type": "function", "function": {"name": "f"}}]
    with_tools, without = (chat.tokenizer.decode(chat.render([Message(role="user")], shown)) for shown in (tools, []))
    assert with_tools.startswith("<|im_start|>tools")
    assert not without.startswith("<|im_start|>tools")


def test_answers_end_with_every_token_that_any_file_names(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    model = changed(folder, eos_token={"content": "<|endoftext|>"}, pad_token=None)
    assert create_chat_format(model).stop_ids == (2, 0, 1)


def test_a_token_that_only_the_configuration_knows_is_added(folder: Path) -> None:
    size = create_chat_format(ModelConfig(tokenizer=str(folder), template="own")).tokenizer.vocab_size
    entry = {"content": "<extra>", "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    chat = create_chat_format(changed(folder, added_tokens_decoder={str(size): entry}))
    assert (chat.tokenizer.encode("<extra>"), chat.tokenizer.decode([size])) == ([size], "<extra>")
    with pytest.raises(UserError, match="<extra>"):
        create_chat_format(changed(folder, added_tokens_decoder={str(size + 5): entry}))


def test_the_built_in_template_tells_tools_and_keeps_thinking() -> None:
    chat = create_chat_format(ModelConfig(tokenizer=str(tokenizer_folder()), template="chatml"))
    acts = Message(role="assistant", reasoning="so", tool_calls=(ToolCall(name="f", arguments='{"a": 1}', id="x"),))
    text = chat.tokenizer.decode(chat.render([Message(role="user", content="do"), acts], [{"type": "function", "function": {"name": "f"}}]))
    assert text.startswith(
        '<|im_start|>system\n# Tools\n\nYou may call these functions:\n<tools>\n{"type": "function", "function": {"name": "f"}}'
    )
    assert text.endswith(
        "<|im_end|>\n<|im_start|>user\ndo<|im_end|>\n<|im_start|>assistant\n<think>\nso\n</think>\n\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n<|im_start|>assistant\n'
    )
    assert isinstance(chat, HfFormat)
    assert chat.notices == ()


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (ModelConfig(tokenizer="drill", template="chatml"), r"drill\+drill"),
        (ModelConfig(tokenizer="nowhere", template="drill"), r"drill\+drill"),
        (ModelConfig(tokenizer="nowhere", template="own"), r"model\.tokenizer='nowhere'.*tokenizer\.json"),
        (ModelConfig(parser=ParserKind.plain), r"model\.parser"),
        (ModelConfig(template_args={"a": 1}), r"model\.template_args"),
        (ModelConfig(tokenizer=str(tokenizer_folder()), template="own"), r"model\.template='own'.*chatml"),
        (ModelConfig(tokenizer=str(tokenizer_folder()), template="llama"), r"model\.template='llama'.*\.jinja"),
        (ModelConfig(tokenizer=str(tokenizer_folder()), template="no.jinja"), r"model\.template='no\.jinja'.*cannot be read"),
    ],
)
def test_what_does_not_fit_is_said(model: ModelConfig, names: str) -> None:
    with pytest.raises(UserError, match=names):
        create_chat_format(model)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"chat_template": "{% if %}"}, r"model\.template='own': is no chat template: line 1"),
        ({"chat_template": "{{ raise_exception('never') }}"}, r"not even one question.*never"),
        ({"chat_template": [{"name": "rag", "template": ""}]}, "no template named default"),
        ({"chat_template": "{{ messages[0].content }}", "eos_token": None, "pad_token": None}, "no token ends"),
    ],
)
def test_a_template_that_cannot_work_is_refused(values: dict[str, Any], names: str, folder: Path) -> None:
    with pytest.raises(UserError, match=names):
        create_chat_format(changed(folder, **values))


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_damaged_file_is_named(file: str, folder: Path) -> None:
    (folder / file).write_text('{"half": ')
    with pytest.raises(UserError, match=file):
        create_chat_format(ModelConfig(tokenizer=str(folder), template="own"))


def test_a_drill_run_loads_no_library_it_does_not_need_and_nothing_loads_torch() -> None:
    code = (
        "import sys; from gyre_hpc.chat import create_chat_format; from gyre_hpc.config.model_schema import ModelConfig\n"
        "create_chat_format(ModelConfig()); assert not {'tokenizers', 'jinja2'} & set(sys.modules)\n"
        f"create_chat_format(ModelConfig(tokenizer={str(tokenizer_folder())!r}, template='chatml'))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
