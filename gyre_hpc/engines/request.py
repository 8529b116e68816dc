"""What a client asks with POST /generate: SGLang's names and shapes, checked at the door. No torch.

Two extensions, both harmless to SGLang: `incremental` (stream chunks carry only what is new) and
`sampling_params.custom_params {"key", "position"}` (counter-based sampling, DESIGN §5).

SGLang trims a matched stop string from `text` unless no_stop_trim is set, and never from output_ids. Our `text` is always
empty and our output_ids are never trimmed either, so no_stop_trim is taken and changes nothing.
"""

import secrets
from dataclasses import dataclass

import msgspec


class BadRequest(Exception):
    """The request is wrong in itself (HTTP 400); the text names field, value and remedy."""


class CustomParams(msgspec.Struct, frozen=True):
    key: str = ""
    """Hex of the call's sampling key; empty: the engine draws one."""
    call: str = ""
    """The gateway's name of the call, `<execution>/<ordinal>`: names the conversation when its KV moves."""
    position: int = 0
    """Output index of the first token to draw, within the call that this request continues: the last `position` input ids
    are output of that call."""


class SamplingParams(msgspec.Struct, frozen=True):
    """Defaults are SGLang's."""

    temperature: float = 1.0
    """0 = greedy."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 or 0 = off."""
    max_new_tokens: int = 128
    stop_token_ids: tuple[int, ...] | None = None
    """The token that matched stays in the output."""
    stop: str | tuple[str, ...] | None = None
    """Ends the answer with the token that completes one of these in its text. Only engines with a tokenizer take it."""
    no_stop_trim: bool = False
    ignore_eos: bool = False
    """True: stop_token_ids are ignored, `stop` is not, as SGLang does."""
    custom_params: CustomParams | None = None


class GenerateBody(msgspec.Struct, frozen=True):
    """Body of POST /generate. Unknown fields are ignored."""

    input_ids: tuple[int, ...]
    rid: str | None = None
    sampling_params: SamplingParams = SamplingParams()
    return_logprob: bool = False
    stream: bool = False
    incremental: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A checked request, as engines compute it."""

    rid: str
    input_ids: tuple[int, ...]
    temperature: float
    top_p: float
    top_k: int
    """0 = off."""
    max_new_tokens: int
    """At least 1; prompt and output together fit the context."""
    stop_ids: frozenset[int]
    key: bytes
    position: int
    return_logprob: bool
    stream: bool
    incremental: bool
    stop: tuple[str, ...] = ()
    call: str = ""


_MAX_STOPS, _MAX_STOP_LENGTH = 64, 1024
"""Looking for stop strings costs their number times the longest, per token."""
_BODY = msgspec.json.Decoder(GenerateBody)


def parse_generate(body: bytes, max_context: int, vocab_size: int | None, *, has_decode: bool = False) -> Request:
    """JSON bytes -> Request. vocab_size None: ids are not checked; has_decode: the engine can look for stop strings.
    Raises BadRequest."""
    try:
        asked = _BODY.decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"/generate body: {error}") from None
    params = asked.sampling_params
    _check_params(params)
    num_prompt = len(asked.input_ids)
    if not num_prompt:
        raise BadRequest("input_ids=[]: give at least one token")
    if num_prompt >= max_context:
        raise BadRequest(f"The input ({num_prompt} tokens) is longer than the model's context length ({max_context} tokens).")
    if min(asked.input_ids) < 0 or (vocab_size is not None and max(asked.input_ids) >= vocab_size):
        raise BadRequest(f"input_ids: ids must lie in 0..{(vocab_size or 0) - 1}, got {min(asked.input_ids)}..{max(asked.input_ids)}")
    custom = params.custom_params or CustomParams()
    if not 0 <= custom.position <= num_prompt:
        raise BadRequest(f"sampling_params.custom_params.position={custom.position}: make it 0 to len(input_ids)={num_prompt}")
    return Request(
        rid=asked.rid or secrets.token_hex(16),
        input_ids=asked.input_ids,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=max(params.top_k, 0),
        max_new_tokens=min(params.max_new_tokens, max_context - num_prompt),
        stop_ids=frozenset(() if params.ignore_eos else params.stop_token_ids or ()),
        key=_key(custom),
        position=custom.position,
        return_logprob=asked.return_logprob,
        stream=asked.stream,
        incremental=asked.incremental,
        stop=_stop_strings(params.stop, has_decode),
        call=custom.call,
    )


def _check_params(params: SamplingParams) -> None:
    checks = (
        ("temperature", params.temperature, params.temperature >= 0, "make it 0 (greedy) or more"),
        ("top_p", params.top_p, 0 < params.top_p <= 1, "make it more than 0 and at most 1"),
        ("top_k", params.top_k, params.top_k >= -1, "make it -1 (off) or at least 1"),
        ("max_new_tokens", params.max_new_tokens, params.max_new_tokens >= 1, "make it at least 1"),
    )
    for field, value, is_good, remedy in checks:
        if not is_good:
            raise BadRequest(f"sampling_params.{field}={value!r}: {remedy}")


def _stop_strings(asked: str | tuple[str, ...] | None, has_decode: bool) -> tuple[str, ...]:
    strings = (asked,) if isinstance(asked, str) else asked or ()
    if not strings:
        return ()
    if not has_decode:
        raise BadRequest(f"sampling_params.stop={list(strings)!r}: this engine has no tokenizer; use stop_token_ids")
    if len(strings) > _MAX_STOPS:
        raise BadRequest(f"sampling_params.stop: {len(strings)} strings; give at most {_MAX_STOPS}")
    for text in strings:
        if not 0 < len(text) <= _MAX_STOP_LENGTH:
            raise BadRequest(f"sampling_params.stop: a string of {len(text)} characters; give 1 to {_MAX_STOP_LENGTH}")
        if "\ufffd" in text:
            raise BadRequest(f"sampling_params.stop={text!r}: U+FFFD stands for bytes that are no text; leave it out")
    return strings


def _key(custom: CustomParams) -> bytes:
    try:
        return bytes.fromhex(custom.key) or secrets.token_bytes(16)
    except ValueError:
        raise BadRequest(f"sampling_params.custom_params.key={custom.key!r}: give hex digits") from None
