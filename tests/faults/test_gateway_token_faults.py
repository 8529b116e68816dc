"""notes/faults.md A1 to A6, A8, A10 and A11 through a whole shard, in every protocol: what the engine saw is what the journal tells."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.config.model_schema import ParserKind
from gyre_hpc.config.schema import Config
from gyre_hpc.protocol.journal import CallBegin, Delivered
from gyre_hpc.protocol.tensors import unpack_ids
from tests.fakes.chat_folders import tokenizer_folder
from tests.fakes.gateway_world import EXECUTION, InTurn, World, output_ids, small_config, spelled, until, world
from tests.fakes.sdk_clients import sdk_ask
from tests.fakes.spoken import MESSAGES, PROTOCOLS, Spoken, key, post

ALL = pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
JSON_CALL = '<tool_call>\n{{"name": "shell", "arguments": {{"command":   "{0} \\u00e9", "timeout": 1e1}}}}\n</tool_call>'
XML_CALL = "<tool_call>\n<function=shell>\n<parameter=command>\n{0}  \n</parameter>\n</function>\n</tool_call>"
GROWS = {"forgets": JSON_CALL, "coder": XML_CALL}
"""Templates whose prompts grow; `forgets` drops what was thought before the last question."""
SHIFTS = {"counts_turns": XML_CALL, "tells_time": XML_CALL, "merges_results": JSON_CALL}
"""Templates that say something else about the past, or of the time."""


def model(template: str, parser: ParserKind = ParserKind.auto) -> Config:
    config = small_config()
    config.model.tokenizer, config.model.template, config.model.parser = str(tokenizer_folder(template)), "own", parser
    return config


def in_bits(chat_format: ChatFormat, text: str) -> list[int]:
    """Ids of the text character by character, but for the marks: what a model may sample, and never what encode makes of it."""
    ids: list[int] = []
    while text:
        mark = next((mark for mark in ("<tool_call>", "</tool_call>", "<think>", "</think>") if text.startswith(mark)), text[0])
        ids += chat_format.tokenizer.encode(mark)
        text = text[len(mark) :]
    return [*ids, chat_format.stop_ids[0]]


async def talk(here: World, spoken: Spoken, num_turns: int, *, rewrite: bool) -> list[dict[str, Any]]:
    """A harness's loop over tools; with `rewrite` it writes the arguments anew before it sends them back."""
    turns: list[Any] = [{"role": "user", "content": "hello"}]
    answers = []
    for turn in range(num_turns):
        status, data = await post(here, spoken, spoken.more | {"model": "m", spoken.turns: turns, "tools": [spoken.tool]})
        assert status == 200, data
        answers.append(orjson.loads(data))
        kept = spoken.kept(answers[-1])
        turns += _rewritten(kept) if rewrite else kept
        turns += [spoken.result(id, f"result {turn}") for id in spoken.call_ids(answers[-1])]
    return answers


def _rewritten(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _rewritten(entry, key) for key, entry in reversed(value.items())}
    if isinstance(value, list):
        return [_rewritten(entry) for entry in value]
    return orjson.dumps(orjson.loads(value)).decode() if name == "arguments" else value


def contexts(here: World) -> dict[str, list[int]]:
    """By call: the prompt as the journal tells it."""
    found: dict[str, list[int]] = {}
    for begin in here.records():
        if isinstance(begin, CallBegin):
            before = found[begin.parent] + output_ids(here, begin.parent) if begin.parent is not None else []
            found[begin.call] = before + unpack_ids(begin.suffix_ids).tolist()
    return found


def live(folder: Path, config: Config, answers: Callable[[ChatFormat], Any], steps: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with world(folder, config) as here:
            await here.engine(answers(create_chat_format(config.model)))
            here.route(0)
            await steps(here)
            # Whatever became of the prompt: the journal tells what the engine saw, and what it gave.
            assert list(contexts(here).values()) == [request["input_ids"] for request in here.engines[0].requests]

    asyncio.run(run())


def replies(call: str, thought: str = "") -> Callable[[ChatFormat], InTurn]:
    return lambda chat: InTurn(
        *(in_bits(chat, thought + f"look {turn}\n" + call.format(f"ls {turn}")) for turn in range(3)), in_bits(chat, "done")
    )


@ALL
@pytest.mark.parametrize("template", GROWS)
@pytest.mark.parametrize("rewrite", [False, True], ids=["verbatim", "rewritten"])
def test_prompts_are_recorded_ids_and_what_is_new(tmp_path: Path, spoken: Spoken, template: str, rewrite: bool) -> None:
    """A1, A2, A3, A5."""
    thought = "<think>\nhmm\n</think>\n\n" if template == "forgets" else ""

    async def steps(here: World) -> None:
        answers = await talk(here, spoken, 4, rewrite=rewrite)
        assert spoken.text(answers[-1]) == "done"
        seen = here.engines[0].requests
        for before, after in itertools.pairwise(seen):
            ordinal = seen.index(before)
            recorded = before["input_ids"] + output_ids(here, f"{EXECUTION}/{ordinal}")
            assert after["input_ids"][: len(recorded)] == recorded
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert [begin.parent for begin in begins] == [None, *(f"{EXECUTION}/{ordinal}" for ordinal in range(3))]
        # The difference is kept; Messages carries arguments as objects, which say less than what the model wrote.
        if spoken is not MESSAGES:
            assert any(begin.changed for begin in begins) == rewrite

    live(tmp_path, model(template), replies(GROWS[template], thought), steps)


@ALL
@pytest.mark.parametrize("template", SHIFTS)
def test_a_template_that_tells_the_past_anew_makes_branches_and_no_error(tmp_path: Path, spoken: Spoken, template: str) -> None:
    """A4."""

    async def steps(here: World) -> None:
        answers = await talk(here, spoken, 4, rewrite=False)
        assert spoken.text(answers[-1]) == "done"
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert [begin.branch for begin in begins if begin.parent is None][1:] == ["template_drift"] * sum(
            begin.parent is None for begin in begins[1:]
        )
        if template == "counts_turns":
            assert [begin.parent for begin in begins] == [None] * 4

    parser = ParserKind.hermes if SHIFTS[template] is JSON_CALL else ParserKind.auto
    live(tmp_path, model(template, parser), replies(SHIFTS[template]), steps)


def test_a_line_that_changes_with_every_execution_does_not_part_their_prompts(tmp_path: Path) -> None:
    """A6."""
    config = small_config()
    config.harness.name = "claude_code"

    async def run() -> None:
        async with world(tmp_path, config) as here:
            engine = await here.engine(InTurn(spelled("ok")))
            here.route(0)
            for number in range(2):
                execution = f"train-0-0-{number}"
                billing = f"x-anthropic-billing-header: cc_version=2.1.220.{number}ab; cc_entrypoint=sdk-cli;"
                system = [{"type": "text", "text": billing}, {"type": "text", "text": "You are an agent."}]
                body = MESSAGES.body(system=system)
                assert (await post(here, MESSAGES, body, headers=key(execution), url=MESSAGES.url(here, execution)))[0] == 200
            assert engine.requests[0]["input_ids"] == engine.requests[1]["input_ids"]

    asyncio.run(run())


@ALL
def test_calls_in_another_notation_than_the_parser_s_are_counted_and_told_to_the_agent(tmp_path: Path, spoken: Spoken) -> None:
    """A8: what ends a run where nothing is ever parsed are these counts."""

    async def steps(here: World) -> None:
        answers = await talk(here, spoken, 2, rewrite=False)
        assert len(spoken.call_ids(answers[0])) == 1, "the agent is told of it as of a call that fails"
        assert [end.malformed for end in here.ends()] == [1, 1]
        assert (here.tokens().get("tool_calls", 0), here.tokens()["tool_calls_malformed"]) == (0, 2)

    live(tmp_path, model("coder"), replies(JSON_CALL), steps)


@ALL
@STREAM
def test_sampling_is_the_configured_one_and_stands_beside_what_was_asked(tmp_path: Path, spoken: Spoken, stream: bool) -> None:
    """A10."""
    config = small_config()
    config.algo.temperature = 0.7

    async def steps(here: World) -> None:
        assert (await post(here, spoken, spoken.body(stream=stream, temperature=0.0, top_p=0.5)))[0] == 200
        (begin,) = [record for record in here.records() if isinstance(record, CallBegin)]
        assert (begin.sampling.temperature, begin.sampling.top_p) == (0.7, 1.0)
        assert begin.requested == {"temperature": 0.0, "top_p": 0.5}
        asked = here.engines[0].requests[0]["sampling_params"]
        assert (asked["temperature"], asked["top_p"], asked["top_k"]) == (0.7, 1.0, -1)

    live(tmp_path, config, lambda chat: InTurn(spelled("ok")), steps)


@ALL
@STREAM
def test_a_client_that_loses_patience_and_asks_again_makes_no_second_turn(tmp_path: Path, spoken: Spoken, stream: bool) -> None:
    """A11."""
    answer = spelled("an answer that takes longer than its client waits")

    async def steps(here: World) -> None:
        engine = here.engines[0]
        engine.faults = ["late:5"]
        impatient = asyncio.create_task(sdk_ask(here.url, spoken, stream=stream))
        await until(lambda: here.tokens().get("sampled") == 5, "five tokens")
        shard: Any = here.gateway.host._machine._shard  # type: ignore[union-attr]
        (live_call,) = shard.live.values()
        first = live_call.conn
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        again = asyncio.create_task(sdk_ask(here.url, spoken, stream=stream))
        await until(lambda: live_call.conn not in ("", first), "it waits for the same call")
        assert not [record for record in here.records() if isinstance(record, Delivered)]
        engine.gate.set()
        assert await again == bytes(answer[:-1]).decode()
        await until(lambda: [record.call for record in here.records() if isinstance(record, Delivered)] == [f"{EXECUTION}/0"], "delivered")
        assert output_ids(here) == answer
        assert len(engine.requests) == 1

    live(tmp_path, small_config(), lambda chat: InTurn(answer), steps)
