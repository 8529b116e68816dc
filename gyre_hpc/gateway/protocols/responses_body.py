"""Fields of a Responses request: which we honour, which are refused by name, which have no effect on the answer."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.json_body import decode_object, encoded

VOLATILE = frozenset(
    [
        "input",
        "instructions",
        "stream",
        "stream_options",
        "metadata",
        "client_metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
    ]
)
"""Not part of a call's identity (input and instructions are, digested turn by turn)."""
REPEATED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "user",
    "include",
)
"""What a response tells of its request, and what it is made with (`include`, `tools`)."""
REASONING, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "conversation": (None,),
    "prompt": (None,),
    "truncation": (None, "disabled"),
    "top_logprobs": (None, 0),
    "tool_choice": (None, "auto", "none"),
    "max_tool_calls": (None,),
    "context_management": (None, []),
}
"""Field -> the values it may have."""


class _Format(msgspec.Struct):
    type: str = "text"


class _Text(msgspec.Struct):
    format: _Format | None = None
    verbosity: str | None = None


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class Body(msgspec.Struct):
    """What is looked at, with its types."""

    input: str | list[Any]
    model: str = ""
    instructions: str | None = None
    tools: list[Any] | None = None
    stream: bool | None = None
    store: bool | None = None
    include: list[str] | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def decode(body: bytes) -> tuple[dict[str, Any], Body]:
    """Raises RequestError naming the field."""
    raw = decode_object(body)
    try:
        asked = msgspec.convert(raw, Body)
    except msgspec.ValidationError as error:
        text = str(error)
        raise RequestError(text, field=text.rpartition("`$")[2].strip("`.") or "input") from None
    _refuse(raw, asked)
    return raw, asked


def identity(raw: Mapping[str, Any]) -> bytes:
    """Canonical JSON of all that makes two requests with the same turns different."""
    return encoded({name: value for name, value in raw.items() if name not in VOLATILE}, sort_keys=True)


def echo(raw: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The part of a request that a response to it needs, as JSON objects: what is long and seldom changes by itself."""
    told = {name: raw[name] for name in REPEATED if raw.get(name) is not None}
    constant = [encoded({name: told.pop(name)}) for name in ("tools", "instructions") if name in told]
    return (*constant, encoded(told))


def echoed(pieces: Iterable[bytes]) -> dict[str, Any]:
    """Inverse of echo."""
    return {name: value for piece in pieces for name, value in orjson.loads(piece).items()}


def _refuse(raw: Mapping[str, Any], asked: Body) -> None:
    for name, allowed in _REFUSED.items():
        if raw.get(name) not in allowed:
            raise RequestError(f"{name}={str(raw[name])[:80]}: not supported here; leave it out", field=name, code="unsupported_value")
    for place, what in enumerate(asked.include or ()):
        if what not in (REASONING, LOGPROBS):
            field = f"include[{place}]"
            raise RequestError(f"{field}={what[:80]!r}: use {REASONING} or {LOGPROBS}", field=field, code="unsupported_value")
    if asked.parallel_tool_calls is False and asked.tools:
        text = "parallel_tool_calls=false: not supported here with tools; leave it out"
        raise RequestError(text, field="parallel_tool_calls", code="unsupported_value")
    kind = asked.text.format.type if asked.text and asked.text.format else "text"
    if kind != "text":
        text = f"text.format.type={kind[:40]!r}: only text is known; ask for a format in the instructions"
        raise RequestError(text, field="text.format.type", code="unsupported_value")
    if asked.max_output_tokens is not None and asked.max_output_tokens < 1:
        raise RequestError(f"max_output_tokens={asked.max_output_tokens}: make it at least 1", field="max_output_tokens")
