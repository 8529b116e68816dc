"""The HTTP surface: who may ask, what is refused by the name of its field, and nothing a client sends is our error."""

import asyncio
import string
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, message, small_config, spelled, world

USER = {"role": "user", "content": "hello"}
PATH = f"/e/{EXECUTION}/v1/chat/completions"


def live(folder: Path, steps: Callable[[World], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await steps(here)

    asyncio.run(run())


async def post(here: World, path: str, body: bytes, token: str) -> tuple[int, dict[str, Any]]:
    async with here.http.post(here.url + path, data=body, headers={"Authorization": f"Bearer {token}"}) as response:
        return response.status, orjson.loads(await response.read())


def test_only_the_key_of_this_execution_opens_it(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        for token in ("", TOKEN, "nonsense", "\u00e9", execution_token(TOKEN, "train-0-0-1")):
            status, body = await post(here, PATH, b"{}", token)
            assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        async with here.http.get(
            f"{here.url}/e/{EXECUTION}/v1/models", headers={"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
        ) as got:
            assert (await got.json())["data"][0]["id"] == "gyre-quickstart"

    live(tmp_path, steps)


def test_unknown_paths_and_executions_are_404(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        key = execution_token(TOKEN, EXECUTION)
        assert (await post(here, "/e/nobody/v1/chat/completions", b"{}", key))[0] == 404
        assert (await post(here, f"/e/{EXECUTION}/v1/audio/speech", b"{}", key))[0] == 404
        assert (await post(here, f"/e/{EXECUTION}", b"{}", key))[0] == 404

    live(tmp_path, steps)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n": 2}, "n"),
        ({"stop": 5}, "stop"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"tools": [{"type": "retrieval", "function": {"name": "x"}}]}, "tools[0].type"),
    ],
)
def test_what_we_cannot_honour_is_refused_by_its_field(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    async def steps(here: World) -> None:
        body = orjson.dumps({"model": "m", "messages": [USER]} | change)
        status, answer = await post(here, PATH, body, execution_token(TOKEN, EXECUTION))
        assert (status, answer["error"]["param"], answer["error"]["type"]) == (400, field, "invalid_request_error")

    live(tmp_path, steps)


def test_a_body_beyond_the_limit_is_413(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        body = orjson.dumps({"messages": [{"role": "user", "content": "x" * 5000}]})
        status, answer = await post(here, PATH, body, execution_token(TOKEN, EXECUTION))
        assert (status, answer["error"]["code"]) == (413, "request_too_large")

    live(tmp_path, steps, max_body_bytes=4096)


@pytest.mark.parametrize("stream", [False, True])
def test_a_context_that_is_too_long_is_told_in_the_wording_harnesses_know(tmp_path: Path, stream: bool) -> None:
    async def steps(here: World) -> None:
        answer = await here.ask([{"role": "user", "content": "x" * 3000}], stream=stream)
        assert answer["status"] == 400
        assert answer["error"]["code"] == "context_length_exceeded"
        assert answer["error"]["message"].startswith(
            "This model's maximum context length is 2000 tokens. However, your messages resulted in 30"
        )
        assert here.records() == ()

    live(tmp_path, steps)


def test_more_calls_at_once_than_allowed_are_refused(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        waiting = asyncio.create_task(here.ask([USER]))
        await asyncio.sleep(0)
        while not here.gateway.host._machine._shard.conns:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
        assert (await here.ask([USER]))["error"]["code"] == "too_many_calls"
        async with here.http.post(
            here.url + PATH, json={"messages": [USER]}, headers={"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
        ) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        assert message(await waiting)["content"] == "ok"

    live(tmp_path, steps, max_calls=1)


def test_sampling_is_ours_whatever_the_harness_asks_and_both_are_recorded(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("a rather long answer")))
        here.route(0)
        answer = await here.ask([USER], temperature=0, top_p=0.5, seed=7, max_tokens=5)
        assert (answer["choices"][0]["finish_reason"], message(answer)["content"]) == ("length", "a rat")
        asked = engine.requests[0]["sampling_params"]
        assert (asked["temperature"], asked["top_p"], asked["top_k"], asked["max_new_tokens"]) == (1.0, 1.0, -1, 5)
        assert here.records()[0].requested == {"temperature": 0, "top_p": 0.5, "seed": 7}  # type: ignore[union-attr]

    live(tmp_path, steps)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_lowercase + "_", max_size=8), inner, max_size=3),
    max_leaves=6,
)
_message = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "user", "assistant", "tool", "developer"]) | _json,
        "content": st.text(max_size=20) | _json,
        "tool_calls": st.lists(
            st.fixed_dictionaries({"id": st.text(max_size=5), "function": st.fixed_dictionaries({"name": st.text(max_size=5), "arguments": st.text(max_size=9)})})
        ) | _json,
        "tool_call_id": st.text(max_size=5) | _json,
    },
)  # fmt: skip
_tool = st.fixed_dictionaries(
    {"type": st.just("function"), "function": st.fixed_dictionaries({"name": st.text(max_size=5), "parameters": _json})}
)
_body = st.fixed_dictionaries(
    {"messages": st.lists(_message, max_size=4) | _json},
    optional={
        "tools": st.lists(_tool | _json, max_size=2) | _json,
        "stream": st.booleans() | _json,
        "stream_options": _json,
        "max_tokens": st.integers(-2, 60) | _json,
        "temperature": _json,
        "seed": _json,
        "tool_choice": _json,
        "model": _json,
    },
)


def test_no_body_is_our_error(tmp_path: Path) -> None:
    """Whatever is sent gets an answer or a 4xx, and the gateway still works afterwards."""
    loop = asyncio.new_event_loop()

    async def begin() -> World:
        here = World(tmp_path, small_config())
        await here.start()
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        return here

    here = loop.run_until_complete(begin())
    key = execution_token(TOKEN, EXECUTION)

    async def send(body: bytes) -> int:
        async with here.http.post(here.url + PATH, data=body, headers={"Authorization": f"Bearer {key}"}) as response:
            await response.read()
            return response.status

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.binary(max_size=40) | _body.map(lambda value: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS) if _fits(value) else b""))
    def no_5xx(body: bytes) -> None:
        assert loop.run_until_complete(send(body)) in (200, 400)

    try:
        no_5xx()
        assert loop.run_until_complete(send(orjson.dumps({"messages": [USER]}))) == 200
    finally:
        loop.run_until_complete(here.close())
        loop.close()


def _fits(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        return False
    return True
