"""Anthropic Messages, streaming and not, and its token counts.

What we cannot honour is refused by the name of its field; what has no effect on the answer (metadata, cache_control, effort,
context_management, ...) is accepted. Thinking is told whenever the model thinks, as text or, where the client asks for
`display: omitted`, inside the block's signature.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import orjson

from gyre_hpc.chat.base import Message
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, Protocol, RequestError, Stream
from gyre_hpc.gateway.protocols.json_body import decode_object, encoded
from gyre_hpc.gateway.protocols.messages_answer import blocks, message, stop, usage
from gyre_hpc.gateway.protocols.messages_errors import error_body, told, wrong
from gyre_hpc.gateway.protocols.messages_stream import MessageStream
from gyre_hpc.gateway.protocols.messages_tools import Tools
from gyre_hpc.gateway.protocols.messages_turns import to_turns
from gyre_hpc.gateway.protocols.places import Misplaced

_VOLATILE = frozenset(
    ["messages", "system", "tools", "stream", "metadata", "cache_control", "service_tier", "diagnostics", "user_profile_id", "workspace_id"]
)
"""Not part of a call's identity as they stand: messages are digested one by one, tools without what moves from turn to turn."""
_SAMPLING = ("temperature", "top_p", "top_k")
_REFUSED = ("mcp_servers", "container", "fallbacks", "thread", "compaction", "output_format")
"""May be absent, null or empty."""
_MOST_STOPS = 32


class _Thinking(msgspec.Struct):
    type: str
    display: str | None = None


class _Output(msgspec.Struct):
    format: dict[str, Any] | None = None


class _Choice(msgspec.Struct):
    type: str
    disable_parallel_tool_use: bool | None = None


class _Body(msgspec.Struct):
    """Fields whose types matter; messages, system and tools are read by hand."""

    model: str = ""
    max_tokens: int | None = None
    stream: bool | None = None
    stop_sequences: Annotated[list[str], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None
    tool_choice: _Choice | None = None


class Messages(Protocol):
    """POST /v1/messages."""

    name = "messages"

    def parse(self, body: bytes) -> ChatRequest:
        return _request(decode_object(body), counts_only=False)

    def parse_count(self, body: bytes) -> ChatRequest:
        """POST /v1/messages/count_tokens: the same without max_tokens."""
        return _request(decode_object(body), counts_only=True)

    def whole(self, head: Head, asked: ChatRequest, finished: Finished) -> bytes:
        return orjson.dumps(message(head, blocks(head, asked, finished), usage(finished.usage), stop(finished)))

    def stream(self, head: Head, asked: ChatRequest) -> Stream:
        return MessageStream(head, asked)

    def error(self, error: RequestError) -> bytes:
        return error_body(error)


def _request(raw: dict[str, Any], *, counts_only: bool) -> ChatRequest:
    asked = _typed(raw)
    _refuse(raw, asked)
    if asked.max_tokens is None and not counts_only:
        raise wrong("max_tokens", "Field required")
    if asked.max_tokens is not None and asked.max_tokens < 1:
        raise wrong("max_tokens", "Input should be greater than or equal to 1")
    tools, turns = _conversation(raw)
    shown = () if asked.tool_choice is not None and asked.tool_choice.type == "none" else tools.shown
    same = {key: value for key, value in raw.items() if key not in _VOLATILE}
    return ChatRequest(
        body=raw,
        identity=encoded([same, shown], sort_keys=True),
        messages=turns,
        tools=shown,
        requested={name: value for name in _SAMPLING if (value := getattr(asked, name)) is not None},
        max_new_tokens=asked.max_tokens or 0,
        stream=bool(asked.stream),
        model=asked.model,
        stop=_stop(asked),
    )


def _conversation(raw: Mapping[str, Any]) -> tuple[Tools, tuple[Message, ...]]:
    try:
        tools = Tools(raw.get("tools"))
    except Misplaced as error:
        raise told(error.within("tools")) from None
    try:
        return tools, to_turns(raw.get("system"), raw.get("messages"), tools)
    except Misplaced as error:
        raise told(error) from None


def _typed(raw: Mapping[str, Any]) -> _Body:
    try:
        return msgspec.convert(raw, _Body)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        raise wrong(place.strip("`") or "body", text) from None


def _refuse(raw: Mapping[str, Any], asked: _Body) -> None:
    for name in _REFUSED:
        if raw.get(name):
            raise _unsupported(name, "leave it out")
    choice, thinking, output = asked.tool_choice, asked.thinking, asked.output_config
    if choice is not None:
        if choice.type not in ("auto", "none"):
            raise _unsupported("tool_choice.type", f"{choice.type[:40]!r}; use 'auto' or 'none'")
        if choice.disable_parallel_tool_use:
            raise _unsupported("tool_choice.disable_parallel_tool_use", "leave it out")
    if output is not None and output.format is not None:
        raise _unsupported("output_config.format", "answers cannot be held to a schema")
    if thinking is not None and thinking.type not in ("enabled", "disabled", "adaptive", "between_tools"):
        raise _unsupported("thinking.type", f"{thinking.type[:40]!r}; use 'enabled', 'adaptive' or 'disabled'")


def _unsupported(field: str, remedy: str) -> RequestError:
    return wrong(field, f"not supported here: {remedy}", "unsupported_value")


def _stop(asked: _Body) -> tuple[str, ...]:
    words = asked.stop_sequences or ()
    for place, word in enumerate(words):
        if not word.strip():
            raise wrong(f"stop_sequences.{place}", "each stop sequence must contain non-whitespace")
    return tuple(words)
