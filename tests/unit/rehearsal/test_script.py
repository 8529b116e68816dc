"""The script: what it says follows from the prompt alone, and no tokenizer would spell it that way."""

import pytest

from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.errors import UserError
from gyre_hpc.rehearsal.company import TOKENIZER
from gyre_hpc.rehearsal.dialects import DIALECTS, dialect_of
from gyre_hpc.rehearsal.scenarios import SCENARIOS, scenario_named
from gyre_hpc.rehearsal.script import instruction, mark, marks_in, next_turn, says_of
from gyre_hpc.rehearsal.spelling import Spelling

FORMAT = create_chat_format(ModelConfig(tokenizer=str(TOKENIZER), template="chatml"))
CASES = [(harness, scenario.name) for harness, dialect in DIALECTS.items() for scenario in SCENARIOS if scenario.needs <= dialect.abilities]


@pytest.mark.parametrize(("harness", "name"), CASES)
def test_a_part_is_said_step_by_step_and_ends(harness: str, name: str) -> None:
    dialect, scenario = dialect_of(harness), scenario_named(name)
    prompt = instruction(scenario, dialect)
    for step in range(len(says_of(scenario, "main", dialect))):
        turn = next_turn(prompt, dialect)
        assert (turn.part, turn.step) == ("main", step)
        assert next_turn(prompt, dialect) == turn
        prompt += turn.text + "".join(arguments for _, arguments in turn.calls)
        assert ("main", step) in marks_in(prompt)
    assert next_turn(prompt, dialect).step == len(says_of(scenario, "main", dialect)) - 1


def test_the_first_instruction_in_a_prompt_says_whose_it_is() -> None:
    dialect = dialect_of("claude_code")
    main = instruction(scenario_named("sub_agent"), dialect)
    delegating = next_turn(main, dialect)
    assert "[[begin side sub_agent]]" in delegating.calls[0][1]
    assert next_turn(main + delegating.text + delegating.calls[0][1], dialect).part == "main"
    assert next_turn("Write side.txt. [[begin side sub_agent]]", dialect).part == "side"


@pytest.mark.parametrize("harness", [name for name, dialect in DIALECTS.items() if dialect.summary_asked])
def test_a_summary_leads_on_from_where_it_was_written(harness: str) -> None:
    dialect = dialect_of(harness)
    prompt = f"{instruction(scenario_named('tools'), dialect)} {mark('main', 1)} {dialect.summary_asked[0]}"
    summary = next_turn(prompt, dialect)
    assert summary.kind == "summary"
    assert next_turn(summary.text, dialect).step == 2


def test_an_answer_that_broke_off_is_ended_once() -> None:
    dialect = dialect_of("qwen_code")
    scenario = scenario_named("gateway_restart")
    broken = f"{instruction(scenario, dialect)} {mark('main', 1)} Point 1 of {dialect.resume_asked[0]}: {mark('main', 1)} Point 1 of"
    rest = next_turn(broken, dialect)
    assert (rest.step, rest.say.moment) == (1, None) and rest.calls
    assert next_turn(broken + rest.text, dialect).step == 2


def test_what_is_said_decodes_to_the_text_and_is_not_the_tokenizers_spelling() -> None:
    dialect = dialect_of("claude_code")
    turn = next_turn(instruction(scenario_named("tools"), dialect), dialect)
    ids = Spelling(FORMAT).ids(turn, longest=1)
    text = FORMAT.tokenizer.decode(ids)
    assert turn.text in text and ids[-1] in FORMAT.stop_ids
    assert ids != FORMAT.tokenizer.encode(text) and len(ids) > len(FORMAT.tokenizer.encode(text))
    answer = FORMAT.parse(ids)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == list(turn.calls) and not answer.malformed


def test_an_endless_answer_has_no_end() -> None:
    dialect = dialect_of("claude_code")
    turn = next_turn(instruction(scenario_named("cut_answer"), dialect), dialect)
    ids = Spelling(FORMAT).ids(turn, longest=777)
    assert len(ids) == 777 and not set(ids) & set(FORMAT.stop_ids)


def test_the_broken_call_is_one_that_no_parser_takes() -> None:
    dialect = dialect_of("claude_code")
    turn = next_turn(instruction(scenario_named("malformed"), dialect), dialect)
    answer = FORMAT.parse(Spelling(FORMAT).ids(turn, longest=1))
    assert len(answer.malformed) == 1 and not answer.tool_calls and mark("main", 0) in answer.content


def test_names_are_known_or_refused() -> None:
    with pytest.raises(UserError, match="use one of text"):
        scenario_named("nothing")
    with pytest.raises(UserError, match="no rehearsal"):
        dialect_of("command")
