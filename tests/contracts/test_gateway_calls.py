"""What a client of a whole shard gets of a call: stop sequences, log-probs, malformed calls, keep-alives, and what is trained on."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.engines.request import parse_generate
from gyre_hpc.gateway.engine_stream import generate_body
from gyre_hpc.machines.call.actions import EngineAttempt
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, Delivered, Sampling
from gyre_hpc.protocol.tensors import pack_ids
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.fold import JournalFold
from tests.fakes.gateway_world import EXECUTION, FORMAT, STOP, TOKEN, TOOLS, InTurn, World, message, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
PATH = f"/e/{EXECUTION}/v1/chat/completions"
BAD = '<tool_call>{"name":"shell","arguments":{"command":}</tool_call>'


def live(folder: Path, steps: Callable[[World], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await steps(here)

    asyncio.run(run())


def folded(here: World) -> list[Call]:
    fold = JournalFold()
    for record in here.records():
        fold.add(record)
    return fold.execution(EXECUTION)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_reaches_the_engine_and_cuts_the_text_alone(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("one two three"), spelled("fine")))
        here.route(0)
        first = message(await here.ask([USER], stop=[" two", "x"], stream=stream))
        assert first["content"] == "one"
        asked = engine.requests[0]["sampling_params"]
        assert (asked["stop"], asked["no_stop_trim"]) == ([" two", "x"], True)
        await here.ask([USER, first, {"role": "user", "content": "more"}], stream=stream)
        assert "stop" not in engine.requests[1]["sampling_params"]
        given = engine.requests[0]["input_ids"] + spelled("one two three")
        assert engine.requests[1]["input_ids"][: len(given)] == given

    live(tmp_path, steps, progress_tokens=3)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probs_are_told_token_by_token_with_their_bytes(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World) -> None:
        await here.engine(InTurn(spelled("é!")))
        here.route(0)
        body = orjson.dumps({"model": "m", "messages": [USER], "logprobs": True, "stream": stream})
        headers = {"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
        async with here.http.post(here.url + PATH, data=body, headers=headers) as response:
            data = await response.read()
        pieces = [orjson.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")] if stream else [orjson.loads(data)]
        (told,) = [choice["logprobs"]["content"] for piece in pieces for choice in piece["choices"] if choice["logprobs"]]
        assert [bytes(token["bytes"]) for token in told[:3]] == [b"\xc3", b"\xa9", b"!"]
        assert [token["logprob"] for token in told] == pytest.approx([-0.5 - id / 1000 for id in spelled("é!")], abs=1e-4)

    live(tmp_path, steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_malformed_call_comes_back_as_a_call_that_fails_and_the_agent_goes_on(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World) -> None:
        output = [*FORMAT.tokenizer.encode("Hm. " + BAD), STOP]
        engine = await here.engine(InTurn(output, spelled("I see.")))
        here.route(0)
        got = await here.ask([USER], tools=TOOLS, stream=stream)
        answer = message(got)
        assert (got["choices"][0]["finish_reason"], answer["content"]) == ("tool_calls", "Hm. ")
        (call,) = answer["tool_calls"]
        with pytest.raises(json.JSONDecodeError):
            json.loads(call["function"]["arguments"]) if call["function"]["name"] == "shell" else json.loads("")
        result = {"role": "tool", "tool_call_id": call["id"], "content": "error: no such tool"}
        assert message(await here.ask([USER, answer, result], tools=TOOLS, stream=stream))["content"] == "I see."
        given = engine.requests[0]["input_ids"] + output
        assert engine.requests[1]["input_ids"][: len(given)] == given
        assert (here.tokens()["tool_calls"], here.tokens()["tool_calls_malformed"]) == (0, 1)
        assert here.ends()[0].malformed == 1

    live(tmp_path, steps)


def test_a_call_whose_engine_hashed_other_ids_is_answered_and_not_trained_on(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("first"), spelled("second")))
        engine.wrong_digest = True
        here.route(0)
        first = message(await here.ask([USER]))
        engine.wrong_digest = False
        await here.ask([USER, first, {"role": "user", "content": "more"}])
        await until(lambda: sum(isinstance(record, Delivered) for record in here.records()) == 2, "both delivered")
        assert [call.delivered for call in folded(here)] == [False, True]
        assert here.tokens()["digest_mismatch"] == 1
        assert ("token_fault", "digest_mismatch") in [(kind, fields.get("what")) for kind, fields in here.notes]

    live(tmp_path, steps)


async def raw_request(here: World, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = here.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = orjson.dumps(body)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {execution_token(TOKEN, EXECUTION)}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    return reader, writer


def test_who_does_not_stream_gets_a_body_that_begins_with_spaces_and_is_json_all_the_same(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        reader, writer = await raw_request(here, {"model": "m", "messages": [USER]})
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readuntil(b"1\r\n \r\n" * 2)
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        rest = await reader.readuntil(b"\r\n0\r\n\r\n")
        assert orjson.loads(rest[rest.index(b"{") : rest.rindex(b"}") + 1])["choices"][0]["message"]["content"] == "ok"
        writer.close()

    live(tmp_path, steps, hold_s=0.05, keepalive_s=0.05)


def test_a_refusal_after_the_body_began_breaks_the_connection_and_the_retry_joins_the_call(tmp_path: Path) -> None:
    """Its status line says 200 already: an error in the body would pass for an answer."""

    async def steps(here: World) -> None:
        body = {"model": "m", "messages": [USER]}
        reader, writer = await raw_request(here, body)
        await reader.readuntil(b"1\r\n \r\n")
        rest = await reader.read()
        assert not rest.replace(b"1\r\n \r\n", b""), "neither an error nor the end of a body"
        writer.close()
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        async with here.http.post(
            here.url + PATH, data=orjson.dumps(body), headers={"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
        ) as response:
            assert orjson.loads(await response.read())["choices"][0]["message"]["content"] == "ok"
        assert len([record for record in here.records() if isinstance(record, CallBegin)]) == 1

    live(tmp_path, steps, hold_s=0.05, keepalive_s=0.05, call_deadline_s=0.4)


@pytest.mark.parametrize("stream", [False, True])
def test_an_execution_that_sampled_its_share_is_told_so(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World) -> None:
        await here.engine(InTurn(spelled("four")))
        here.route(0)
        assert message(await here.ask([USER]))["content"] == "four"
        refused = await here.ask([{"role": "user", "content": "more"}], stream=stream)
        assert (refused["status"], refused["error"]["code"]) == (400, "token_limit_exceeded")
        assert "gateway.max_tokens_per_execution" in refused["error"]["message"]

    live(tmp_path, steps, max_tokens_per_execution=5)


@pytest.mark.parametrize("stop", [["x" * 1025], ["y"] * 65])
def test_stop_sequences_that_engines_do_not_take_are_refused_at_the_door(tmp_path: Path, stop: list[str]) -> None:
    async def steps(here: World) -> None:
        answer = await here.ask([USER], stop=stop)
        assert (answer["status"], answer["error"]["param"]) == (400, "stop")

    live(tmp_path, steps)


def test_a_stop_sequence_that_is_no_text_is_not_asked_of_engines(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("one two")))
        here.route(0)
        assert message(await here.ask([USER], stop=["\ufffd", " two"]))["content"] == "one"
        assert engine.requests[0]["sampling_params"]["stop"] == [" two"]

    live(tmp_path, steps)


@pytest.mark.parametrize("stop", [["x" * 1024], ["y"] * 64])
def test_stop_sequences_that_pass_the_door_are_taken_by_our_engines(stop: list[str]) -> None:
    attempt = EngineAttempt(
        call=f"{EXECUTION}/0", cell="c", url="u", term=1, version=Version(), prompt=(pack_ids([1, 2]),), max_new_tokens=4,
        sampling=Sampling(key="0" * 32), position=0, stop_ids=(5,), deadline_s=1.0, stop=tuple(stop),
    )  # fmt: skip
    asked = parse_generate(generate_body("r", attempt), 100, None, has_decode=True)
    assert (asked.stop, asked.stop_ids, list(asked.input_ids)) == (tuple(stop), frozenset({5}), [1, 2])
