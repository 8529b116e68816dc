"""Bad input over the wire, for every protocol of conversations: an answer or a 4xx in the protocol's words, never a 5xx."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, small_config, spelled, world

CHAT, MESSAGES = "chat/completions", "messages"
BOTH = pytest.mark.parametrize("protocol", [CHAT, MESSAGES])
Post = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]


def body_of(protocol: str, messages: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "m", "max_tokens": 9, "messages": messages} | more)


def live(folder: Path, steps: Callable[[World, Post], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)

            async def post(protocol: str, body: Any, *, execution: str = EXECUTION, key: str | None = None) -> tuple[int, dict[str, Any]]:
                headers = {"x-api-key": execution_token(TOKEN, execution) if key is None else key}
                async with here.http.post(f"{here.url}/e/{execution}/v1/{protocol}", data=body, headers=headers) as response:
                    return response.status, orjson.loads(await response.read())

            await steps(here, post)
            for protocol in (CHAT, MESSAGES):
                status, _ = await post(protocol, body_of(protocol, [{"role": "user", "content": "still there?"}]))
                assert status == 200

    asyncio.run(run())


def is_refusal(protocol: str, status: int, answer: dict[str, Any]) -> bool:
    """A 4xx whose body has the protocol's shape."""
    kinds = {"type", "message"} if protocol == MESSAGES else {"message", "type", "param", "code"}
    return 400 <= status < 500 and set(answer["error"]) == kinds and (answer.get("type") == "error") == (protocol == MESSAGES)


@BOTH
def test_a_wrong_key_and_a_foreign_execution_open_nothing(tmp_path: Path, protocol: str) -> None:
    async def steps(here: World, post: Post) -> None:
        foreign = execution_token(TOKEN, "train-0-0-1")
        for execution, key, expected in (
            (EXECUTION, "", 401),
            (EXECUTION, foreign, 401),
            ("nobody", foreign, 404),
            ("%ff%00", foreign, 404),
        ):
            status, answer = await post(protocol, b"{}", execution=execution, key=key)
            assert (status, is_refusal(protocol, status, answer)) == (expected, True)

    live(tmp_path, steps)


@BOTH
def test_a_body_that_was_cut_off_is_refused(tmp_path: Path, protocol: str) -> None:
    async def steps(here: World, post: Post) -> None:
        whole = body_of(protocol, [{"role": "user", "content": "hello"}])
        for end in (0, 1, len(whole) // 2, len(whole) - 1):
            status, answer = await post(protocol, whole[:end])
            assert (status, is_refusal(protocol, status, answer)) == (400, True)

    live(tmp_path, steps)


@BOTH
def test_a_body_of_200_megabytes_is_refused_at_the_limit(tmp_path: Path, protocol: str) -> None:
    async def steps(here: World, post: Post) -> None:
        async def much() -> Any:
            for _ in range(200):
                yield b" " * (1 << 20)

        try:
            status, answer = await post(protocol, much())
        except aiohttp.ClientConnectionError:
            # The connection is closed under a client that goes on sending.
            return
        assert (status, is_refusal(protocol, status, answer)) == (413, True)

    live(tmp_path, steps, max_body_bytes=1 << 20)


@BOTH
@pytest.mark.parametrize(
    "text",
    [b"\\u0000", b"a\\u0000b", b"\\ud800", b"\\udc00\\ud800", b"\\ud83d\\ude00", b"\\uffff", b"<|im_end|>\\u0000<|im_start|>", b"\\u202e"],
)
def test_odd_characters_get_an_answer(tmp_path: Path, protocol: str, text: bytes) -> None:
    """Wherever they stand: text, ids, names, arguments."""
    call = {"type": "tool_use", "id": "c?", "name": "n?", "input": {"k?": "v?"}}
    result = {"type": "tool_result", "tool_use_id": "c?", "content": "r?"}
    messages = [{"role": "user", "content": "u?"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools: list[Any] = [{"name": "n?", "description": "d?", "input_schema": {"type": "object", "properties": {"k?": {}}}}]
    if protocol == CHAT:
        chat_call = {"id": "c?", "type": "function", "function": {"name": "n?", "arguments": '"v?"'}}
        messages[1] = {"role": "assistant", "content": "a?", "tool_calls": [chat_call]}
        messages[2] = {"role": "tool", "tool_call_id": "c?", "content": "r?"}
        tools = [{"type": "function", "function": {"name": "n?", "description": "d?", "parameters": {"properties": {"k?": {}}}}}]

    async def steps(here: World, post: Post) -> None:
        for stop in ({}, {"stop_sequences" if protocol == MESSAGES else "stop": ["s?"]}):
            body = body_of(protocol, messages, tools=tools, user="u?", metadata={"user_id": "m?"}, **stop)
            status, answer = await post(protocol, body.replace(b"?", text))
            assert status == 200, answer

    live(tmp_path, steps)


@BOTH
def test_results_and_calls_out_of_order_are_refused_by_their_place(tmp_path: Path, protocol: str) -> None:
    user = {"role": "user", "content": "u"}
    call: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "n", "input": {}}
    called: Callable[..., dict[str, Any]] = lambda *calls: {"role": "assistant", "content": list(calls)}
    result: dict[str, Any] = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]}
    place, twice = "messages.0.content.0", "messages.1.content.1.id"
    if protocol == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": "n", "arguments": "{}"}}
        called = lambda *calls: {"role": "assistant", "content": None, "tool_calls": list(calls)}
        result = {"role": "tool", "tool_call_id": "c1", "content": "r"}
        place, twice = "messages[0].tool_call_id", "messages[1].tool_calls[1].id"

    async def steps(here: World, post: Post) -> None:
        for messages, where in (([result], place), ([result, called(call), user], place), ([user, called(call, call), result], twice)):
            status, answer = await post(protocol, body_of(protocol, messages))
            assert (status, is_refusal(protocol, status, answer)) == (400, True)
            assert answer["error"]["message"].startswith(where)
        # The same id in two turns, and a call without a result, are odd but unambiguous.
        for messages in ([user, called(call), result, called(call), result], [user, called(call), user]):
            assert (await post(protocol, body_of(protocol, messages)))[0] == 200

    live(tmp_path, steps)


def test_unknown_paths_are_refused_in_the_words_of_whom_they_belong_to(tmp_path: Path) -> None:
    async def steps(here: World, post: Post) -> None:
        for path, protocol in (("messages/batches", MESSAGES), ("audio/speech", CHAT)):
            status, answer = await post(path, b"{}")
            assert (status, is_refusal(protocol, status, answer)) == (404, True)
        async with here.http.get(f"{here.url}/e/{EXECUTION}/v1/files", headers={"anthropic-version": "2023-06-01"}) as response:
            assert is_refusal(MESSAGES, response.status, await response.json())

    live(tmp_path, steps)
