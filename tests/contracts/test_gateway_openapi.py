"""The surface is what its OpenAPI document says, and nothing a client sends is our error."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from gyre_hpc.gateway.openapi import document, document_bytes
from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, small_config, spelled

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"
KEY = {"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
CHECKS = [schemathesis.checks.not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CALLS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": [{"role": "user", "content": "hi"}]},
    "/v1/messages": {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}
CAREFUL = settings(
    max_examples=20, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip


class Shard:
    """A gateway shard with one engine, in a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.world = self._run(self._begin(folder))
        self.url = self.world.url
        self.http = requests.Session()

    def post(self, path: str, body: bytes) -> requests.Response:
        headers = KEY | {"Content-Type": "application/json"}
        return self.http.post(f"{self.url}/e/{EXECUTION}{path}", data=body, headers=headers, timeout=20)

    def close(self) -> None:
        self.http.close()
        self._run(self.world.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _begin(self, folder: Path) -> World:
        here = World(folder, small_config())
        await here.start()
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        return here

    def _run(self, steps: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(30)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    here = Shard(tmp_path_factory.mktemp("run"))
    yield here
    here.close()


def test_the_committed_document_is_what_is_served(shard: Shard) -> None:
    again = "write it anew: .venv/bin/python -m gyre_hpc.gateway.openapi > docs/openapi.json"
    assert COMMITTED.read_bytes() == document_bytes(), again
    served = shard.http.get(f"{shard.url}/e/{EXECUTION}/openapi.json", headers=KEY, timeout=20)
    assert (served.status_code, served.content) == (200, document_bytes())
    assert shard.http.get(f"{shard.url}/e/{EXECUTION}/openapi.json", timeout=20).status_code == 401


@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_described(shard: Shard, label: str) -> None:
    """Requests that fit the description and ones that do not."""
    operation = OPERATIONS[label]
    fitting = operation.as_strategy(path_parameters={"execution": EXECUTION})
    broken = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @CAREFUL
    @given(fitting | broken if _can_be_broken(operation) else fitting)
    def described(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=shard.url, headers=KEY, checks=CHECKS, session=shard.http)

    described()


def _can_be_broken(operation: Any) -> bool:
    return operation.method == "post"


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_plain_request_is_answered_as_described(shard: Shard, path: str, stream: bool) -> None:
    """So that the test above is known to see answers, not only refusals."""
    operation = OPERATIONS[f"POST /e/{{execution}}{path}"]
    case = operation.Case(
        path_parameters={"execution": EXECUTION}, body=CALLS[path] | {"stream": stream}, media_type="application/json"
    )  # fmt: skip
    response = case.call_and_validate(base_url=shard.url, headers=KEY, checks=CHECKS, session=shard.http)
    assert response.status_code == 200
    assert response.headers["content-type"][0].startswith("text/event-stream" if stream else "application/json")


def test_a_stored_response_is_as_described_until_it_is_deleted(shard: Shard) -> None:
    given = shard.post("/v1/responses", orjson.dumps(CALLS["/v1/responses"] | {"metadata": {"a": "b"}, "instructions": "be brief"})).json()
    statuses = []
    for method, path in [("GET", ""), ("POST", "/cancel"), ("DELETE", ""), ("GET", "")]:
        operation = OPERATIONS[f"{method} /e/{{execution}}/v1/responses/{{response}}{path}"]
        case = operation.Case(path_parameters={"execution": EXECUTION, "response": given["id"]})
        statuses.append(case.call_and_validate(base_url=shard.url, headers=KEY, checks=CHECKS, session=shard.http).status_code)
    assert statuses == [200, 400, 200, 404]


def refusal(path: str, response: requests.Response) -> dict[str, Any]:
    """An error in the protocol's shape."""
    body = orjson.loads(response.content)
    error: dict[str, Any] = body["error"]
    if path == "/v1/messages":
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
    else:
        assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


RAW = {
    "nothing": b"",
    "not an object": b"[]",
    "truncated": b'{"messages": [{"role": "user", "con',
    "no text": b'{"model": "\xff\xfe"}',
    "NUL bytes": b"\0\0\0\0",
    "a NUL between tokens": b'{"model":\0 "m"}',
    "half a surrogate pair": rb'{"model": "\ud800", "messages": 5, "input": 5}',
    "too deep to read": b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "too deep to write": b'{"input": "hi", "messages": [], "tools": ' + b"[" * 400 + b"]" * 400 + b"}",
    "a number beyond 64 bits": b'{"input": "hi", "max_output_tokens": ' + b"9" * 40 + b', "max_tokens": ' + b"9" * 40 + b"}",
    "a number beyond floats": b'{"input": "hi", "temperature": 1e999, "max_tokens": 1e999}',
    "not a number": b'{"input": "hi", "temperature": NaN}',
    "a field twice, the last one wrong": b'{"input": "hi", "input": 7, "messages": "x", "messages": 7}',
}


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("name", RAW)
def test_a_body_that_is_no_request_is_told_so_in_the_protocols_words(shard: Shard, path: str, name: str) -> None:
    response = shard.post(path, RAW[name])
    assert response.status_code == 400
    refusal(path, response)


_names = st.sampled_from(
    ["input", "messages", "model", "tools", "stream", "instructions", "text", "include", "stop", "system", "max_tokens"]
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_names | st.sampled_from(["role", "content", "type", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_item = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "text", "tool_use"])},
    optional={
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": st.text(max_size=6) | _json,
        "call_id": st.sampled_from(["a", f"call_{EXECUTION}_0_0"]),
        "id": st.sampled_from(["a", f"msg_{EXECUTION}_0", f"fc_{EXECUTION}_0_0"]) | _json,
        "name": st.text(max_size=3) | _json,
        "arguments": st.text(max_size=6) | _json,
        "output": st.text(max_size=6) | _json,
        "encrypted_content": st.text(max_size=9) | _json,
        "summary": _json,
        "namespace": _json,
    },
)


@pytest.mark.parametrize("path", CALLS)
def test_no_body_is_our_error(shard: Shard, path: str) -> None:
    """Bytes, any JSON, cut-off JSON, and conversations of odd parts: an answer, or a 4xx in the protocol's shape."""
    odd = st.fixed_dictionaries({"input": st.lists(_item, max_size=4), "messages": st.lists(_item, max_size=4)}, optional={"tools": _json})
    written = (st.dictionaries(_names, _json, max_size=5) | odd).map(lambda value: json.dumps(value).encode())
    cut = st.tuples(written, st.integers(1, 40)).map(lambda pair: pair[0][: -pair[1]])

    @settings(CAREFUL, max_examples=150)
    @given(st.binary(max_size=40) | written | cut)
    def no_5xx(body: bytes) -> None:
        response = shard.post(path, body)
        if response.status_code != 200:
            assert 400 <= response.status_code < 500
            refusal(path, response)

    no_5xx()
    assert shard.post(path, orjson.dumps(CALLS[path])).status_code == 200
