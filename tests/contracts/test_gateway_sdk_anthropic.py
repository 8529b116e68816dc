"""The official Anthropic client, sync, async and streaming, against a whole gateway shard."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam, TextBlock, ThinkingBlock, ToolParam, ToolUseBlock

from gyre_hpc.chat.base import Answer
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.protocol.journal import CallBegin
from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, called, output_ids, small_config, spelled, until, world

TOOLS: list[ToolParam] = [{"name": "shell", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]
USER: MessageParam = {"role": "user", "content": "hello"}
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 100}


class Thinking(DrillFormat):
    """What stands before `</think>` is reasoning."""

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        text = self.tokenizer.decode([id for id in ids if id not in self.stop_ids])
        reasoning, closed, content = text.partition("</think>")
        return Answer(content=content, reasoning=reasoning) if closed else Answer(content="", reasoning="" if partial else text)


def client(here: World, **options: Any) -> anthropic.AsyncAnthropic:
    key = execution_token(TOKEN, EXECUTION)
    return anthropic.AsyncAnthropic(**({"base_url": f"{here.url}/e/{EXECUTION}", "api_key": key, "max_retries": 0} | options))


def live(folder: Path, answers: Any, steps: Callable[[World, anthropic.AsyncAnthropic], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await here.engine(answers)
            here.route(0)
            async with client(here) as asking:
                await steps(here, asking)

    asyncio.run(run())


def begins(here: World) -> list[CallBegin]:
    return [record for record in here.records() if isinstance(record, CallBegin)]


def test_a_loop_over_tools_is_one_recorded_context(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        messages: list[MessageParam] = [USER]
        for turn in range(3):
            if turn == 1:
                async with asking.messages.stream(messages=messages, tools=TOOLS, **ASKED) as stream:
                    answer = await stream.get_final_message()
            else:
                answer = await asking.messages.create(messages=messages, tools=TOOLS, **ASKED)
            if turn == 2:
                break
            assert answer.stop_reason == "tool_use"
            text, call = answer.content
            assert isinstance(text, TextBlock)
            assert isinstance(call, ToolUseBlock)
            assert (text.text, call.name, call.input) == (f"look {turn}", "shell", {"command": f"ls {turn}"})
            messages.append({"role": "assistant", "content": answer.content})
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a b"}]})
        assert (answer.stop_reason, [block.to_dict() for block in answer.content]) == ("end_turn", [{"type": "text", "text": "done"}])
        assert [(begin.parent, begin.branch) for begin in begins(here)] == [(None, "root"), (f"{EXECUTION}/0", ""), (f"{EXECUTION}/1", "")]
        counted = await asking.messages.count_tokens(model="m", messages=messages, tools=TOOLS)
        assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens

    live(tmp_path, InTurn(called("ls 0", "look 0"), called("ls 1", "look 1"), spelled("done")), steps)


def test_the_sync_client_gets_the_same(tmp_path: Path) -> None:
    def ask(url: str) -> tuple[str, str]:
        with anthropic.Anthropic(base_url=url, auth_token=execution_token(TOKEN, EXECUTION), api_key=None, max_retries=0) as asking:
            whole = asking.messages.create(messages=[USER], **ASKED)
            with asking.messages.stream(messages=[{"role": "user", "content": "again"}], **ASKED) as stream:
                return whole.content[0].text, "".join(stream.text_stream)  # type: ignore[union-attr]

    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        assert await asyncio.to_thread(ask, f"{here.url}/e/{EXECUTION}") == ("one", "two")

    live(tmp_path, InTurn(spelled("one"), spelled("two")), steps)


@pytest.mark.parametrize("display", ["summarized", "omitted"])
@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_told_and_round_trips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, display: str, stream: bool) -> None:
    monkeypatch.setattr("gyre_hpc.gateway.run.create_chat_format", lambda *chosen: Thinking())
    asked: dict[str, Any] = ASKED | {"thinking": {"type": "adaptive", "display": display}}

    async def ask(asking: anthropic.AsyncAnthropic, messages: list[MessageParam]) -> anthropic.types.Message:
        if not stream:
            return await asking.messages.create(messages=messages, **asked)
        async with asking.messages.stream(messages=messages, **asked) as events:
            return await events.get_final_message()

    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        first = await ask(asking, [USER])
        thought, text = first.content
        assert isinstance(thought, ThinkingBlock)
        assert isinstance(text, TextBlock)
        assert (thought.thinking, text.text) == ("because" if display == "summarized" else "", "so")
        await ask(asking, [USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": "go on"}])
        assert begins(here)[1].parent == f"{EXECUTION}/0"

    live(tmp_path, InTurn(spelled("because</think>so"), spelled("yes</think>no")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_ends_the_answer_and_is_named(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        asked: dict[str, Any] = ASKED | {"messages": [USER], "stop_sequences": ["END"]}
        if stream:
            async with asking.messages.stream(**asked) as events:
                answer = await events.get_final_message()
        else:
            answer = await asking.messages.create(**asked)
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "END")
        assert [block.to_dict() for block in answer.content] == [{"type": "text", "text": "one "}]

    live(tmp_path, InTurn(spelled("one END two")), steps)


def test_system_turns_in_mid_conversation_and_a_limit(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        messages: list[MessageParam] = [USER, {"role": "system", "content": [{"type": "text", "text": "be brief"}]}]
        answer = await asking.messages.create(model="m", max_tokens=3, system="you code", messages=messages)
        assert answer.stop_reason == "max_tokens"
        assert [block.to_dict() for block in answer.content] == [{"type": "text", "text": "one"}]
        assert output_ids(here) == list(b"one")

    live(tmp_path, InTurn(spelled("one two")), steps)


def test_keep_alives_change_nothing_for_the_client(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        here.engines[0].faults.append("late:0")
        num_empty = 0
        async with asking.messages.stream(messages=[USER], tools=TOOLS, **ASKED) as events:
            async for event in events:
                if event.type == "content_block_delta" and event.delta.type == "text_delta" and not event.delta.text:
                    num_empty += 1
                    if num_empty == 2:
                        here.engines[0].gate.set()
            answer = await events.get_final_message()
        assert num_empty >= 2
        assert [block.type for block in answer.content] == ["text", "tool_use"]
        kept: list[MessageParam] = [USER, {"role": "assistant", "content": answer.content}]
        result = {"type": "tool_result", "tool_use_id": answer.content[1].id, "content": "a"}  # type: ignore[union-attr]
        await asking.messages.create(messages=[*kept, {"role": "user", "content": [result]}], tools=TOOLS, **ASKED)  # type: ignore[list-item]
        assert begins(here)[1].parent == f"{EXECUTION}/0"

    live(tmp_path, InTurn(called("ls"), spelled("done")), steps, keepalive_s=0.05)


def test_errors_are_those_of_the_client(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        with pytest.raises(anthropic.BadRequestError, match="tool_choice.type: not supported here"):
            await asking.messages.create(messages=[USER], tools=TOOLS, tool_choice={"type": "any"}, **ASKED)
        with pytest.raises(anthropic.BadRequestError) as refused:
            await asking.messages.create(messages=[{"role": "user", "content": "x" * 3000}], **ASKED)
        error = refused.value.body["error"]  # type: ignore[index]
        assert error["type"] == "invalid_request_error"
        tokens = await asking.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x" * 3000}])
        assert error["message"] == f"prompt is too long: {tokens.input_tokens} tokens > 2000 maximum"
        with pytest.raises(anthropic.RequestTooLargeError):
            await asking.messages.create(messages=[{"role": "user", "content": "x" * 9000}], **ASKED)
        async with client(here, api_key="nonsense") as stranger:
            for refused_call in (stranger.messages.create(messages=[USER], **ASKED), stranger.models.retrieve("m")):
                with pytest.raises(anthropic.AuthenticationError):
                    await refused_call
        async with client(here, base_url=f"{here.url}/e/nobody") as stranger:
            with pytest.raises(anthropic.NotFoundError):
                await stranger.messages.create(messages=[USER], **ASKED)
        with pytest.raises(anthropic.NotFoundError, match="no such path"):
            await asking.messages.batches.list()

    live(tmp_path, InTurn(spelled("ok")), steps, max_body_bytes=8192)


def test_too_many_calls_at_once_are_a_rate_limit(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        here.engines[0].faults.append("late:0")
        waiting = asyncio.create_task(asking.messages.create(messages=[USER], **ASKED))
        await until(lambda: here.engines[0].requests, "the first call reaches the engine")
        with pytest.raises(anthropic.RateLimitError):
            await asking.messages.create(messages=[{"role": "user", "content": "other"}], **ASKED)
        here.engines[0].gate.set()
        assert (await waiting).content[0].to_dict() == {"type": "text", "text": "ok"}

    live(tmp_path, InTurn(spelled("ok")), steps, max_calls=1)


def test_models_are_listed_and_any_name_is_one(tmp_path: Path) -> None:
    async def steps(here: World, asking: anthropic.AsyncAnthropic) -> None:
        assert [model.id async for model in asking.models.list()] == ["gyre-quickstart"]
        assert (await asking.models.retrieve("claude-opus-4-6")).id == "claude-opus-4-6"
        for method in ("HEAD", "GET"):
            async with here.http.request(method, f"{here.url}/e/{EXECUTION}/api/hello") as response:
                assert response.status == 200

    live(tmp_path, InTurn(spelled("ok")), steps)
