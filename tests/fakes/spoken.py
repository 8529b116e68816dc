"""The three harness protocols as a client of ours speaks them: a request of plain turns, and what an answer or an error says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from gyre_hpc.protocol.tokens import execution_token
from tests.fakes.gateway_world import EXECUTION, TOKEN, World


@dataclass(frozen=True, kw_only=True)
class Spoken:
    """One protocol. Bodies are JSON values."""

    name: str
    path: str
    """Below /e/<execution>/v1/."""
    turns: str
    """Field that holds the conversation."""
    more: dict[str, Any]
    """Fields that every request needs."""
    text: Callable[[dict[str, Any]], str]
    """Of a whole answer."""
    delta: Callable[[dict[str, Any]], str]
    """Text in one event of a streamed answer."""
    is_end: Callable[[dict[str, Any]], bool]
    is_empty: Callable[[dict[str, Any]], bool]
    """A keep-alive."""
    call: Callable[[str, str], dict[str, Any]]
    """Turn in which the assistant calls the tool `shell`: id, command."""
    result: Callable[[str, str], dict[str, Any]]
    tool: dict[str, Any]

    def body(self, text: str = "hello", **more: Any) -> dict[str, Any]:
        return self.more | {"model": "m", self.turns: [{"role": "user", "content": text}]} | more

    def kept(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """What a harness puts into its history for this answer."""
        if self.name == "messages":
            return [{"role": "assistant", "content": answer["content"]}]
        if self.name == "responses":
            return list(answer["output"])
        return [{name: value for name, value in answer["choices"][0]["message"].items() if value is not None}]

    def call_ids(self, answer: dict[str, Any]) -> list[str]:
        """Of its tool calls."""
        if self.name == "messages":
            return [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        if self.name == "responses":
            return [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
        return [call["id"] for call in answer["choices"][0]["message"].get("tool_calls") or ()]

    def url(self, here: World, execution: str = EXECUTION) -> str:
        return f"{here.url}/e/{execution}/v1/{self.path}"

    def error(self, body: dict[str, Any]) -> str:
        """Its message; asserts the shape of the protocol's errors."""
        error = body["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        if self.name == "messages":
            assert (body["type"], set(error)) == ("error", {"type", "message"})
            assert error["type"].endswith(("_error", "_too_large"))
        else:
            assert {"message", "type", "param", "code"} <= set(error)
            assert error["type"].endswith("_error")
        return error["message"]


CHAT = Spoken(
    name="chat_completions",
    path="chat/completions",
    turns="messages",
    more={},
    text=lambda body: body["choices"][0]["message"]["content"] or "",
    delta=lambda event: "".join(choice["delta"].get("content") or "" for choice in event["choices"]),
    is_end=lambda event: any(choice["finish_reason"] for choice in event["choices"]),
    is_empty=lambda event: [choice["delta"] for choice in event["choices"]] == [{"content": ""}],
    call=lambda id, command: {
        "role": "assistant",
        "tool_calls": [{"id": id, "type": "function", "function": {"name": "shell", "arguments": f'{{"command":"{command}"}}'}}],
    },
    result=lambda id, text: {"role": "tool", "tool_call_id": id, "content": text},
    tool={"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {"command": {}}}}},
)
MESSAGES = Spoken(
    name="messages",
    path="messages",
    turns="messages",
    more={"max_tokens": 100},
    text=lambda body: "".join(block.get("text", "") for block in body["content"]),
    delta=lambda event: event["delta"].get("text", "") if event["type"] == "content_block_delta" else "",
    is_end=lambda event: event["type"] == "message_stop",
    is_empty=lambda event: event.get("delta") == {"type": "text_delta", "text": ""},
    call=lambda id, command: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": id, "name": "shell", "input": {"command": command}}],
    },
    result=lambda id, text: {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]},
    tool={"name": "shell", "input_schema": {"type": "object", "properties": {"command": {}}}},
)
RESPONSES = Spoken(
    name="responses",
    path="responses",
    turns="input",
    more={},
    text=lambda body: "".join(part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]),
    delta=lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
    is_end=lambda event: event["type"] in ("response.completed", "response.incomplete"),
    is_empty=lambda event: event["type"] == "response.in_progress" and event["sequence_number"] > 1,
    call=lambda id, command: {"type": "function_call", "call_id": id, "name": "shell", "arguments": f'{{"command":"{command}"}}'},
    result=lambda id, text: {"type": "function_call_output", "call_id": id, "output": text},
    tool={"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {"command": {}}}},
)
PROTOCOLS = (CHAT, MESSAGES, RESPONSES)


def key(execution: str = EXECUTION) -> dict[str, str]:
    return {"Authorization": f"Bearer {execution_token(TOKEN, execution)}", "Content-Type": "application/json"}


async def post(here: World, spoken: Spoken, body: Any, *, headers: dict[str, str] | None = None, url: str = "") -> tuple[int, bytes]:
    """Status and bytes of the response; `body` is sent as it is when it is bytes."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    async with here.http.post(url or spoken.url(here), data=data, headers=headers or key()) as response:
        return response.status, await response.read()


async def ask(here: World, spoken: Spoken, text: str = "hello", *, execution: str = EXECUTION, **more: Any) -> str:
    """The text of an answer, streamed or not; asserts that it is whole."""
    status, data = await post(here, spoken, spoken.body(text, **more), headers=key(execution), url=spoken.url(here, execution))
    assert status == 200, data
    return text_of(spoken, data)


def text_of(spoken: Spoken, data: bytes) -> str:
    """Of a whole body, or of a stream that ended as streams end."""
    if data.lstrip().startswith(b"{"):
        return spoken.text(orjson.loads(data))
    told = events(data)
    assert [event for event in told if spoken.is_end(event)], f"the stream broke off: {data[-300:]!r}"
    return "".join(map(spoken.delta, told))


def events(data: bytes) -> list[dict[str, Any]]:
    """JSON of server-sent events, of which a last one may be torn."""
    found = []
    for event in data.split(b"\n\n")[:-1]:
        for line in event.split(b"\n"):
            if line.startswith(b"data: {"):
                found.append(orjson.loads(line[6:]))
    return found


async def is_serving(here: World, text: str = "are you there") -> bool:
    """Another execution of this shard gets its answer."""
    return bool(await ask(here, CHAT, text, execution="train-0-0-1"))


class Reading:
    """A streamed request whose events are taken as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response, self.data = response, b""

    async def until(self, spoken: Spoken, num_empty: int) -> None:
        """So many keep-alives were seen."""
        while sum(map(spoken.is_empty, events(self.data))) < num_empty:
            data = await self.response.content.readany()
            assert data, f"the stream ended: {self.data[-300:]!r}"
            self.data += data

    async def rest(self) -> bytes:
        self.data += await self.response.read()
        return self.data
