"""The official OpenAI client's Chat Completions, sync, async and streaming, against a whole gateway shard."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from gyre_hpc.protocol.journal import CallBegin, CallProgress
from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, TOOLS, InTurn, World, called, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
ASKED: dict[str, Any] = {"model": "m", "messages": [USER]}


def options(here: World, **change: Any) -> dict[str, Any]:
    return {"base_url": f"{here.url}/e/{EXECUTION}/v1", "api_key": execution_token(TOKEN, EXECUTION), "max_retries": 0} | change


def live(folder: Path, answers: Any, steps: Callable[[World, openai.AsyncOpenAI], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await here.engine(answers)
            here.route(0)
            async with openai.AsyncOpenAI(**options(here)) as asking:
                await steps(here, asking)

    asyncio.run(run())


async def collected(stream: Any) -> tuple[str, list[Any], list[str], Any]:
    """Text, tool calls, finish reasons and usage of a stream."""
    text, calls, finishes, usage = "", [], [], None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += choice.delta.tool_calls or []
            finishes += [choice.finish_reason] if choice.finish_reason else []
    return text, calls, finishes, usage


def test_a_loop_over_tools_is_one_recorded_context(tmp_path: Path) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        first = await asking.chat.completions.create(**ASKED, tools=TOOLS)
        message = first.choices[0].message
        assert (first.choices[0].finish_reason, message.content) == ("tool_calls", "look")
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        assert (call.function.name, call.function.arguments) == ("shell", '{"command":"ls"}')  # type: ignore[union-attr]
        result = {"role": "tool", "tool_call_id": call.id, "content": "a b"}
        messages: list[Any] = [USER, message.model_dump(exclude_none=True), result]
        stream = await asking.chat.completions.create(
            model="m", messages=messages, tools=TOOLS, stream=True, stream_options={"include_usage": True}  # type: ignore[arg-type]
        )  # fmt: skip
        text, calls, finishes, usage = await collected(stream)
        assert (text, calls, finishes) == ("done", [], ["stop"])
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert [(begin.parent, begin.branch) for begin in begins] == [(None, "root"), (f"{EXECUTION}/0", "")]
        assert usage.completion_tokens == 5

    live(tmp_path, InTurn(called("ls", "look"), spelled("done")), steps)


def test_streamed_calls_arrive_whole(tmp_path: Path) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        async with asking.chat.completions.stream(**ASKED, tools=TOOLS) as stream:
            async for _ in stream:
                pass
            message = (await stream.get_final_completion()).choices[0].message
        assert message.content == "look"
        assert message.tool_calls is not None
        assert message.tool_calls[0].function.arguments == '{"command":"ls"}'
        assert message.tool_calls[0].id == f"call_{EXECUTION}_0_0"

    live(tmp_path, InTurn(called("ls", "look")), steps)


def test_the_sync_client_gets_the_same(tmp_path: Path) -> None:
    def ask(given: dict[str, Any]) -> tuple[str | None, str]:
        with openai.OpenAI(**given) as asking:
            whole = asking.chat.completions.create(**ASKED)
            stream = asking.chat.completions.create(model="m", messages=[{"role": "user", "content": "again"}], stream=True)
            return whole.choices[0].message.content, "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        assert await asyncio.to_thread(ask, options(here)) == ("one", "two")

    live(tmp_path, InTurn(spelled("one"), spelled("two")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probs_are_those_in_the_journal(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        tokens: list[Any] = []
        if stream:
            async for chunk in await asking.chat.completions.create(**ASKED, logprobs=True, stream=True):
                for choice in chunk.choices:
                    tokens += (choice.logprobs.content if choice.logprobs else None) or []
        else:
            whole = await asking.chat.completions.create(**ASKED, logprobs=True)
            assert whole.choices[0].logprobs is not None
            tokens += whole.choices[0].logprobs.content or []
        recorded = [
            value for record in here.records() if isinstance(record, CallProgress) for value in memoryview(record.logprobs).cast("f")
        ]
        assert [token.logprob for token in tokens] == pytest.approx(recorded)
        assert bytes(byte for token in tokens[:2] for byte in token.bytes) == b"ok"
        assert len(tokens) == 3, "the end of the turn was sampled too"

    live(tmp_path, InTurn(spelled("ok")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_ends_the_answer(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        if stream:
            text, _, finishes, _ = await collected(await asking.chat.completions.create(**ASKED, stop=["END"], stream=True))
            assert (text, finishes) == ("one ", ["stop"])
        else:
            choice = (await asking.chat.completions.create(**ASKED, stop="END")).choices[0]
            assert (choice.message.content, choice.finish_reason) == ("one ", "stop")

    live(tmp_path, InTurn(spelled("one END two")), steps)


def test_errors_are_those_of_the_client(tmp_path: Path) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            await asking.chat.completions.create(**ASKED, n=2)
        assert (refused.value.param, refused.value.code) == ("n", "unsupported_value")
        with pytest.raises(openai.BadRequestError) as too_long:
            await asking.chat.completions.create(model="m", messages=[{"role": "user", "content": "x" * 3000}])
        assert too_long.value.code == "context_length_exceeded"
        async with openai.AsyncOpenAI(**options(here, api_key="nonsense")) as stranger:
            for refused_call in (stranger.chat.completions.create(**ASKED), stranger.models.list()):
                with pytest.raises(openai.AuthenticationError):
                    await refused_call
        async with openai.AsyncOpenAI(**options(here, base_url=f"{here.url}/e/nobody/v1")) as stranger:
            with pytest.raises(openai.NotFoundError):
                await stranger.chat.completions.create(**ASKED)
        with pytest.raises(openai.NotFoundError, match="no such path"):
            await asking.embeddings.create(model="m", input="x")

    live(tmp_path, InTurn(spelled("ok")), steps)


def test_too_many_calls_at_once_are_a_rate_limit(tmp_path: Path) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        here.engines[0].faults.append("late:0")
        waiting = asyncio.create_task(asking.chat.completions.create(**ASKED))
        await until(lambda: here.engines[0].requests, "the first call reaches the engine")
        with pytest.raises(openai.RateLimitError):
            await asking.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
        here.engines[0].gate.set()
        assert (await waiting).choices[0].message.content == "ok"

    live(tmp_path, InTurn(spelled("ok")), steps, max_calls=1)


def test_models_are_listed_and_any_name_is_one(tmp_path: Path) -> None:
    async def steps(here: World, asking: openai.AsyncOpenAI) -> None:
        assert [model.id async for model in asking.models.list()] == ["gyre-quickstart"]
        assert (await asking.models.retrieve("org/any-model")).id == "org/any-model"

    live(tmp_path, InTurn(spelled("ok")), steps)
