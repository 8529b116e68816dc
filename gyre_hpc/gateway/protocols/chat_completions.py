"""OpenAI Chat Completions, streaming and not.

What we cannot honour is refused by the name of its field, never ignored in silence; what has no effect on the answer
(user, metadata, ...) is accepted. Sampling parameters are recorded; the configured ones are used.
"""

from typing import Annotated, Any

import msgspec
import orjson

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, Protocol, RequestError, Stream, Usage
from gyre_hpc.gateway.protocols.chat_memory import ChatMemory
from gyre_hpc.gateway.protocols.chat_messages import to_tools
from gyre_hpc.gateway.protocols.growing_body import GrowingBodies
from gyre_hpc.gateway.protocols.json_body import encoded

_DONE = b"data: [DONE]\n\n"
_VOLATILE = frozenset(
    [
        "messages",
        "stream",
        "stream_options",
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "store",
        "service_tier",
    ]
)
"""Not part of a call's identity (messages are, digested one by one)."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty")
_REFUSED: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "top_logprobs": (None, 0),
    "response_format": (None, {"type": "text"}),
    "logit_bias": (None, {}),
    "functions": (None, []),
    "function_call": (None, "none"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "tool_choice": (None, "auto", "none"),
    "parallel_tool_calls": (None, True),
}
"""Field -> the values it may have."""
_MOST_STOPS = 32


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    """Fields whose types matter; messages and tools are read by hand."""

    model: str = ""
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: str | Annotated[list[str], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    logprobs: bool | None = None


class ChatCompletions(Protocol):
    """POST /v1/chat/completions."""

    name = "chat_completions"

    def __init__(self) -> None:
        self._bodies, self._memory = GrowingBodies("messages"), ChatMemory()

    def parse(self, body: bytes) -> ChatRequest:
        return self.parse_for("", body)

    def forget(self, execution: str) -> None:
        self._bodies.forget(execution)
        self._memory.forget(execution)

    def parse_for(self, execution: str, body: bytes) -> ChatRequest:
        raw = self._bodies.decode(execution, body)
        asked = _typed(raw)
        for field, allowed in _REFUSED.items():
            if raw.get(field) not in allowed:
                raise RequestError(
                    f"{field}={str(raw[field])[:80]}: not supported here; leave it out", field=field, code="unsupported_value"
                )
        tools = to_tools(raw.get("tools"))
        return ChatRequest(
            body=raw,
            identity=encoded({key: value for key, value in raw.items() if key not in _VOLATILE}, sort_keys=True),
            messages=self._memory.messages(execution, raw.get("messages")),
            tools=() if raw.get("tool_choice") == "none" else tools,
            requested={name: value for name in _SAMPLING if (value := getattr(asked, name)) is not None},
            max_new_tokens=_limit(asked),
            stream=bool(asked.stream),
            model=asked.model,
            with_usage=bool(asked.stream_options and asked.stream_options.include_usage),
            stop=_stop(asked),
            logprobs=bool(asked.logprobs),
        )

    def whole(self, head: Head, asked: ChatRequest, finished: Finished) -> bytes:
        answer = finished.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.content or (None if answer.tool_calls else "")}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in answer.tool_calls]
        choice = {"index": 0, "message": message, "logprobs": _logprobs(asked, finished), "finish_reason": finished.finish}
        return orjson.dumps(_head(head, "chat.completion") | {"choices": [choice], "usage": _usage(finished.usage)})

    def stream(self, head: Head, asked: ChatRequest) -> "ChatStream":
        return ChatStream(head, asked)

    def error(self, error: RequestError) -> bytes:
        return _error(error)


class ChatStream(Stream):
    """chat.completion.chunk events."""

    def __init__(self, head: Head, asked: ChatRequest) -> None:
        self._head, self._asked = head, asked
        self._said = {"reasoning_content": "", "content": ""}

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def keep_alive(self) -> bytes:
        return self._chunk({"content": ""})

    def reasoning(self, text: str) -> bytes:
        return self._say("reasoning_content", text)

    def text(self, text: str) -> bytes:
        return self._say("content", text)

    def closing(self, finished: Finished) -> bytes:
        answer = finished.answer
        events = self._rest("reasoning_content", answer.reasoning) + self._rest("content", answer.content)
        if answer.tool_calls:
            events += self._chunk({"tool_calls": [{"index": place} | _tool_call(call) for place, call in enumerate(answer.tool_calls)]})
        events += self._chunk({}, finished.finish, _logprobs(self._asked, finished))
        if self._asked.with_usage:
            events += _event(_head(self._head, "chat.completion.chunk") | {"choices": [], "usage": _usage(finished.usage)})
        return events + _DONE

    def error(self, error: RequestError) -> bytes:
        return b"data: " + _error(error) + b"\n\n"

    def _rest(self, name: str, whole: str) -> bytes:
        rest = whole[len(self._said[name]) :]
        return self._say(name, rest) if rest else b""

    def _say(self, name: str, text: str) -> bytes:
        self._said[name] += text
        return self._chunk({name: text})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return _event(_head(self._head, "chat.completion.chunk") | {"choices": [choice]})


def _typed(raw: dict[str, Any]) -> _Body:
    try:
        return msgspec.convert(raw, _Body)
    except msgspec.ValidationError as error:
        text = str(error)
        raise RequestError(text, field=text.rpartition("`$")[2].strip("`.")) from None


def _stop(asked: _Body) -> tuple[str, ...]:
    words = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    return tuple(word for word in words if word)


def _limit(asked: _Body) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = getattr(asked, name)
        if limit is not None:
            if limit < 1:
                raise RequestError(f"{name}={limit}: make it at least 1", field=name)
            return int(limit)
    return 0


def _head(head: Head, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.call.replace('/', '-')}", "object": kind, "created": head.created, "model": head.model}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    total = usage.prompt_tokens + usage.completion_tokens
    counts = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens, "total_tokens": total}
    return counts | {"prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}


def _logprobs(asked: ChatRequest, finished: Finished) -> dict[str, Any] | None:
    """Of every output token, marks and calls included: they are what was sampled."""
    if not asked.logprobs:
        return None
    tokens = [{"token": t.text, "bytes": list(t.raw), "logprob": t.logprob, "top_logprobs": []} for t in finished.logprobs]
    return {"content": tokens, "refusal": None}


def _error(error: RequestError) -> bytes:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return orjson.dumps({"error": {"message": error.text, "type": kind, "param": error.field or None, "code": error.code}})


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
