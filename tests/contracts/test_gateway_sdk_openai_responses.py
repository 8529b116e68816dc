"""The official OpenAI client, sync, async and streaming, against a whole gateway shard: Responses."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from gyre_hpc.chat.base import Answer
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.protocol.journal import CallBegin
from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, STOP, TOKEN, InTurn, World, called, small_config, spelled, until, world

SHELL: Any = {
    "type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}  # fmt: skip
ASKED: dict[str, Any] = {"model": "m", "tools": [SHELL]}
Asking = openai.AsyncOpenAI


class Thinking(DrillFormat):
    """What stands before `</think>` is reasoning."""

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        place = self.tokenizer.decode([id for id in ids if id not in self.stop_ids]).find("</think>")
        if place < 0:
            return Answer(content="", reasoning="" if partial else self.tokenizer.decode(ids))
        said = super().parse(ids[place + len("</think>") :], stop=stop, partial=partial, tools=tools)
        return Answer(
            content=said.content, reasoning=self.tokenizer.decode(ids[:place]), tool_calls=said.tool_calls, malformed=said.malformed
        )


def client(here: World, **options: Any) -> Asking:
    key = execution_token(TOKEN, EXECUTION)
    return Asking(**({"base_url": f"{here.url}/e/{EXECUTION}/v1", "api_key": key, "max_retries": 0} | options))


def live(folder: Path, answers: Any, steps: Callable[[World, Asking], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await here.engine(answers)
            here.route(0)
            async with client(here) as asking:
                await steps(here, asking)

    asyncio.run(run())


def places(here: World) -> list[tuple[str | None, str]]:
    """Parent and branch of every call."""
    return [(record.parent, record.branch) for record in here.records() if isinstance(record, CallBegin)]


ONE_LINE = [(None, "root"), (f"{EXECUTION}/0", ""), (f"{EXECUTION}/1", "")]
"""Three calls, each going on from the one before."""


async def create(asking: Asking, stream: bool, **asked: Any) -> Any:
    """The response, whole or put together from its events."""
    if not stream:
        return await asking.responses.create(**asked)
    async with asking.responses.stream(**asked) as events:
        return await events.get_final_response()


def result(call: Any, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_over_tools_by_earlier_response_is_one_recorded_context(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: Asking) -> None:
        asked = ASKED | {"instructions": "be brief"}
        answer = await create(asking, stream, input="hello", **asked)
        for turn in range(2):
            text, call = answer.output
            assert (text.content[0].text, call.name, call.arguments) == (f"look {turn}", "shell", f'{{"command":"ls {turn}"}}')
            before = answer.id
            answer = await create(asking, stream, input=[result(call, "a b")], previous_response_id=before, **asked)
            assert answer.previous_response_id == before
        assert (answer.status, answer.output_text) == ("completed", "done")
        assert places(here) == ONE_LINE
        assert len({here.engines[0].requests[n]["rid"] for n in range(3)}) == 3

    live(tmp_path, InTurn(called("ls 0", "look 0"), called("ls 1", "look 1"), spelled("done")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_that_sends_everything_back_is_the_same_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    monkeypatch.setattr("gyre_hpc.gateway.run.create_chat_format", lambda *chosen: Thinking())
    asked = ASKED | {"store": False, "include": ["reasoning.encrypted_content"]}

    async def steps(here: World, asking: Asking) -> None:
        history: list[Any] = [{"role": "user", "content": "hello"}]
        for _ in range(2):
            answer = await create(asking, stream, input=history, **asked)
            thought, *rest = answer.output
            assert thought.content[0].text == "because"
            assert thought.encrypted_content
            kept = thought.to_dict() | {"content": None}
            history += [kept, *(item.to_dict() for item in rest), result(rest[-1], "a b")]
        answer = await create(asking, stream, input=history, **asked)
        assert answer.output_text == "done"
        assert places(here) == ONE_LINE
        with pytest.raises(openai.NotFoundError):
            await asking.responses.retrieve(answer.id)
        with pytest.raises(openai.NotFoundError):
            await asking.responses.create(input="go on", previous_response_id=answer.id, **asked)
        history[1]["encrypted_content"] = "forged"
        with pytest.raises(openai.BadRequestError, match="could not be verified") as refused:
            await asking.responses.create(input=history, **asked)
        assert (refused.value.code, refused.value.param) == ("invalid_encrypted_content", "input[1].encrypted_content")

    thoughts = [[*b"because</think>", *ids] for ids in (called("ls 0", "look"), called("ls 1"), spelled("done"))]
    live(tmp_path, InTurn(*thoughts), steps)


def test_the_sync_client_gets_the_same(tmp_path: Path) -> None:
    def ask(url: str) -> list[str]:
        with openai.OpenAI(base_url=url, api_key=execution_token(TOKEN, EXECUTION), max_retries=0) as asking:
            whole = asking.responses.create(model="m", input="hello").output_text
            with asking.responses.stream(model="m", input="again") as events:
                pieces = "".join(event.delta for event in events if event.type == "response.output_text.delta")
                final = events.get_final_response().output_text
            raw = [event.type for event in asking.responses.create(model="m", input="third", stream=True)]
            return [whole, pieces, final, raw[0], raw[-1]]

    async def steps(here: World, asking: Asking) -> None:
        told = await asyncio.to_thread(ask, f"{here.url}/e/{EXECUTION}/v1")
        assert told == ["one", "two", "two", "response.created", "response.completed"]

    live(tmp_path, InTurn(spelled("one"), spelled("two"), spelled("three")), steps)


def test_a_stored_response_can_be_fetched_also_after_a_restart_until_it_is_deleted(tmp_path: Path) -> None:
    async def steps(here: World, asking: Asking) -> None:
        given = await asking.responses.create(input="hello", metadata={"a": "b"}, instructions="be brief", **ASKED)
        assert await asking.responses.retrieve(given.id) == given
        await here.gateway.close()
        await here.start(incarnation=2)
        here.route(0)
        assert await asking.responses.retrieve(given.id) == given
        again = ASKED | {"instructions": "be brief", "previous_response_id": given.id}
        later = await asking.responses.create(input=[result(given.output[0], "a b")], **again)
        assert later.output_text == "done"
        assert places(here) == ONE_LINE[:2]
        await asking.responses.delete(given.id)
        for refused in (
            asking.responses.retrieve(given.id),
            asking.responses.delete(given.id),
            asking.responses.create(input="x", previous_response_id=given.id, **ASKED),
        ):
            with pytest.raises(openai.NotFoundError, match=f"esponse with id '{given.id}' not found"):
                await refused
        assert (await asking.responses.retrieve(later.id)).output_text == "done"

    live(tmp_path, InTurn(called("ls"), spelled("done")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_can_be_cancelled_while_somebody_waits_for_it(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: Asking) -> None:
        here.engines[0].faults.append("late:0")
        waiting = asyncio.create_task(create(asking, stream, input="hello", **ASKED))
        await until(lambda: here.engines[0].requests, "the call reaches the engine")
        cancelled = await asking.responses.cancel(f"resp_{EXECUTION}_0")
        assert (cancelled.id, cancelled.status) == (f"resp_{EXECUTION}_0", "cancelled")
        if stream:
            # The client's helper has no final response to give when the stream says response.failed, or gets a 400 before it began.
            with pytest.raises((RuntimeError, openai.BadRequestError)):
                await waiting
        else:
            with pytest.raises(openai.BadRequestError, match="was cancelled"):
                await waiting
        here.engines[0].gate.set()
        given = await asking.responses.create(input="other", **ASKED)
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a completed response"):
            await asking.responses.cancel(given.id)

    live(tmp_path, InTurn(spelled("one"), spelled("two")), steps)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_is_incomplete(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World, asking: Asking) -> None:
        if stream:
            events = [event async for event in await asking.responses.create(model="m", input="hello", max_output_tokens=3, stream=True)]
            assert events[-1].type == "response.incomplete"
            answer = events[-1].response
        else:
            answer = await asking.responses.create(model="m", input="hello", max_output_tokens=3)
        assert (answer.status, answer.output_text) == ("incomplete", "one")
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"

    live(tmp_path, InTurn(spelled("one two")), steps)


def test_keep_alives_change_nothing_for_the_client(tmp_path: Path) -> None:
    async def steps(here: World, asking: Asking) -> None:
        here.engines[0].faults.append("late:0")
        num_alive = 0
        async with asking.responses.stream(input="hello", **ASKED) as events:
            async for event in events:
                if event.type == "response.in_progress":
                    num_alive += 1
                    if num_alive == 3:
                        here.engines[0].gate.set()
            answer = await events.get_final_response()
        assert num_alive >= 3
        assert [item.type for item in answer.output] == ["function_call"]

    live(tmp_path, InTurn(called("ls")), steps, keepalive_s=0.05)


def test_log_probs_of_what_was_sampled(tmp_path: Path) -> None:
    async def steps(here: World, asking: Asking) -> None:
        answer = await asking.responses.create(model="m", input="hello", include=["message.output_text.logprobs"])
        part: Any = answer.output[0].content[0]  # type: ignore[union-attr]
        tokens = [told.token for told in part.logprobs]
        assert "".join(tokens[:2]) == "ok"
        assert len(tokens) == len([*b"ok", STOP])
        assert all(told.logprob <= 0 for told in part.logprobs)

    live(tmp_path, InTurn(spelled("ok")), steps)


def test_errors_are_those_of_the_client(tmp_path: Path) -> None:
    async def steps(here: World, asking: Asking) -> None:
        with pytest.raises(openai.BadRequestError, match="background=True: not supported here") as refused:
            await asking.responses.create(model="m", input="x", background=True)
        assert refused.value.param == "background"
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError, match="exceeds the context window") as refused:
                await create(asking, stream, model="m", input="x" * 3000)
            assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
        with pytest.raises(openai.APIStatusError) as refused_size:
            await asking.responses.create(model="m", input="x" * 9000)
        assert refused_size.value.status_code == 413
        for id in ("resp_nobody", f"resp_{EXECUTION}_7", "resp_train-0-0-1_0"):
            with pytest.raises(openai.NotFoundError, match=f"Previous response with id '{id}' not found."):
                await asking.responses.create(model="m", input="x", previous_response_id=id)
            for about in (asking.responses.retrieve(id), asking.responses.delete(id), asking.responses.cancel(id)):
                with pytest.raises(openai.NotFoundError, match=f"Response with id '{id}' not found."):
                    await about
        given = await asking.responses.create(model="m", input="x")
        with pytest.raises(openai.BadRequestError, match="stream: not supported here"):
            await asking.responses.retrieve(given.id, stream=True)
        with pytest.raises(openai.NotFoundError, match="no such path"):
            await asking.responses.input_items.list(given.id)
        async with client(here, api_key="nonsense") as stranger:
            for about in (stranger.responses.create(model="m", input="x"), stranger.responses.retrieve(given.id)):
                with pytest.raises(openai.AuthenticationError):
                    await about

    live(tmp_path, InTurn(spelled("ok")), steps, max_body_bytes=8192)
