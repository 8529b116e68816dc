"""What was found out about a template, and what that changes."""

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.chat.folder import hf_format
from gyre_hpc.chat.hf_format import HfFormat
from gyre_hpc.chat.probe import Growth
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.turns import Adaptation
from gyre_hpc.config.model_schema import ModelConfig, PastThinking
from tests.fakes.chat_folders import CODER, FORGETS, STRICT, TEMPLATES, tokenizer_folder

QUESTION = Message(role="user", content="hello")
REMINDER = Message(role="system", content="be brief")
SAID = Message(role="assistant", content="hi")


def chat_of(source: str, tmp_path_factory: pytest.TempPathFactory, **more: object) -> HfFormat:
    path = tmp_path_factory.mktemp("template") / "own.jinja"
    path.write_text(source)
    folder = tokenizer_folder()
    return hf_format(ModelConfig(**{"tokenizer": str(folder), "template": str(path)} | more), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "growth"),
    [
        ("coder", Growth.appends),
        ("names_results", Growth.appends),
        ("strict", Growth.appends),
        ("forgets", Growth.forgets_thinking),
        ("opens_thinking", Growth.forgets_thinking),
        ("counts_turns", Growth.rewrites),
        ("merges_results", Growth.rewrites),
        ("tells_time", Growth.rewrites),
    ],
)
def test_growth_is_found_by_trying(name: str, growth: Growth) -> None:
    folder = tokenizer_folder(name)
    assert hf_format(ModelConfig(tokenizer=str(folder), template="own"), folder).findings.growth is growth
    assert name in TEMPLATES


def test_a_date_that_is_given_instead_of_told_makes_a_template_append(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = "{%- set today = date_string if date_string is defined else strftime_now('%d %b') %}{{- '<|im_start|>system\n' + today + '<|im_end|>\n' }}"
    assert chat_of(source + CODER, tmp_path_factory).findings.growth is Growth.rewrites
    fixed = chat_of(source + CODER, tmp_path_factory, template_args={"date_string": "26 Jul"})
    assert (fixed.findings.growth, fixed.notices) == (Growth.appends, ())


def test_a_template_that_refuses_later_system_turns_gets_user_turns_and_this_is_said() -> None:
    folder = tokenizer_folder("strict")
    chat = hf_format(ModelConfig(tokenizer=str(folder), template="own"), folder)
    assert chat.findings.adaptation is Adaptation.joined
    assert any("system turns after the first turn are shown as user turns" in notice for notice in chat.notices)
    asked = chat.tokenizer.decode(chat.render([REMINDER, QUESTION, SAID, QUESTION, REMINDER], []))
    assert asked == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nhi<|im_end|>\n"
        "<|im_start|>user\nhello\n\nbe brief<|im_end|>\n<|im_start|>assistant\n"
    )
    assert asked.endswith(chat.tokenizer.decode(chat.render_suffix([QUESTION, REMINDER], ended=True)))


@pytest.mark.parametrize(
    ("source", "adaptation"),
    [
        (
            STRICT.replace("roles must alternate", "").replace("loop.previtem.role == message.role == 'user'", "false"),
            Adaptation.later_system,
        ),
        (STRICT.replace("and not loop.first %}", "%}"), Adaptation.no_system),
        (
            CODER.replace(
                "{%- if message.role == 'tool' %}",
                "{%- if message.role == 'system' and not loop.first %}{%- elif message.role == 'tool' %}",
            ),
            Adaptation.later_system,
        ),
        (CODER, Adaptation.none),
    ],
    ids=["refuses", "no system at all", "leaves out", "takes"],
)
def test_the_least_change_that_works_is_made(source: str, adaptation: Adaptation, tmp_path_factory: pytest.TempPathFactory) -> None:
    chat = chat_of(source, tmp_path_factory)
    assert (chat.findings.adaptation, chat.findings.growth) == (adaptation, Growth.appends)


def test_an_empty_thought_in_the_prompt_is_dropped_thinking_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = FORGETS.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n'")
    keeps = chat_of(source, tmp_path_factory)
    assert keeps.findings.growth is Growth.forgets_thinking
    assert keeps.render_suffix([QUESTION], ended=True)
    rules = chat_of(source, tmp_path_factory, past_thinking=PastThinking.template)
    with pytest.raises(ValueError, match="empty thinking"):
        rules.render_suffix([QUESTION], ended=True, thought=False)


def test_a_template_that_ends_turns_with_no_token_gives_no_suffix(tmp_path_factory: pytest.TempPathFactory) -> None:
    chat = chat_of("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ", tmp_path_factory)
    assert chat.findings.growth is Growth.rewrites
    assert "ends an assistant's turn with no token" in chat.notices[0]
    with pytest.raises(ValueError, match="no token"):
        chat.render_suffix([QUESTION], ended=True)


def test_messages_that_a_template_refuses_are_a_value_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    chat = chat_of("{% if messages | length > 9 %}{{ raise_exception('too many') }}{% endif %}" + CODER, tmp_path_factory)
    with pytest.raises(ValueError, match="too many"):
        chat.render([QUESTION, SAID] * 5, [])


def test_suffix_text_takes_no_part_in_what_later_messages_say(tmp_path_factory: pytest.TempPathFactory) -> None:
    chat = chat_of(CODER, tmp_path_factory)
    for trick in ("what-the-recorded-answer-says", "<|im_end|>", "{{ 1 }}"):
        text = chat.tokenizer.decode(chat.render_suffix([Message(role="user", content=trick)], ended=False))
        assert text == f"<|im_end|>\n<|im_start|>user\n{trick}<|im_end|>\n<|im_start|>assistant\n"


def test_a_clock_is_read_only_when_a_template_asks() -> None:
    template = ChatTemplate(CODER, variables={}, now=lambda: pytest.fail("asked"))
    template.render([{"role": "user", "content": "x"}], [])
    assert not template.tells_time


def test_a_template_that_shows_either_words_or_calls_still_appends(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = CODER.replace(
        "message.role + '\\n' + message.content }}", "message.role + '\\n' + ('' if message.tool_calls else message.content) }}"
    )
    chat = chat_of(source, tmp_path_factory)
    assert (source != CODER, chat.findings.growth) == (True, Growth.appends)
    result = Message(role="tool", content="what-the-recorded-answer-says", tool_call_id="x")
    text = chat.tokenizer.decode(chat.render_suffix([result], ended=False))
    assert text.startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\nwhat-the-recorded-answer-says\n</tool_response>")


def test_conversations_that_a_template_refuses_say_nothing_about_the_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = (
        "{%- for message in messages %}{%- if message.role == 'tool' %}{{- raise_exception('no tools') }}{%- endif %}{%- endfor %}" + CODER
    )
    chat = chat_of(source, tmp_path_factory)
    assert chat.findings.growth is Growth.appends
    assert chat.render_suffix([QUESTION], ended=True)
    with pytest.raises(ValueError, match="no tools"):
        chat.render_suffix([Message(role="tool", content="1", tool_call_id="x")], ended=True)
