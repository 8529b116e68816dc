"""What a client asks with POST /generate: SGLang's names and shapes, checked at the door. No torch.

Two extensions, both harmless to SGLang: `incremental` (stream chunks carry only what is new) and
`sampling_params.custom_params {"key", "position"}` (counter-based sampling, DESIGN §5).
"""

import secrets
from dataclasses import dataclass

import msgspec


class BadRequest(Exception):
    """The request is wrong in itself (HTTP 400); the text names field, value and remedy."""


class CustomParams(msgspec.Struct, frozen=True):
    key: str = ""
    """Hex of the call's sampling key; empty: the engine draws one."""
    position: int = 0
    """Output index of the first token to draw, within the call that this request continues."""


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
    ignore_eos: bool = False
    """True: stop_token_ids are ignored, as SGLang does."""
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


_BODY = msgspec.json.Decoder(GenerateBody)


def parse_generate(body: bytes, max_context: int, vocab_size: int | None) -> Request:
    """JSON bytes -> Request. vocab_size None: ids are not checked. Raises BadRequest."""
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


def _key(custom: CustomParams) -> bytes:
    if custom.position < 0:
        raise BadRequest(f"sampling_params.custom_params.position={custom.position}: make it 0 or more")
    try:
        return bytes.fromhex(custom.key) or secrets.token_bytes(16)
    except ValueError:
        raise BadRequest(f"sampling_params.custom_params.key={custom.key!r}: give hex digits") from None
