"""What the call machine is told by its shell, and what it asks of it. In-process values, never on a wire.

The shell parses HTTP, renders, tokenises, parses answers, talks to engines and to clients; everything it finds out comes
back as one of these. Ids and log-probs travel as packed little-endian bytes (protocol/tensors.py).
"""

from typing import Any

import msgspec

from gyre_hpc.chat.base import Answer, Message
from gyre_hpc.machines.call.turns import Turn
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Record, Sampling, VersionSpan

CLIENTS = "clients"
"""Sender of Arrived and Left."""


class Arrived(msgspec.Struct, frozen=True):
    """A harness asks for one answer on connection `conn` (unique per process start)."""

    conn: str
    execution: str
    role: str
    thread: str
    request_hash: str
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    """One per message."""
    tools: tuple[dict[str, Any], ...] = ()
    tools_digest: bytes = b""
    requested: dict[str, float | int | str] = {}
    max_new_tokens: int = 0
    """0: the harness set no limit."""
    stream: bool = False
    protocol: str = ""
    """chat_completions, responses or messages."""
    stop: tuple[str, ...] = ()
    """Stop sequences asked for."""
    logprobs: bool = False
    """The client wants the log-probs of the tokens it gets."""
    store: bool = False
    """Keep the answer for `Retrieve` and for requests that go on from it."""
    previous: str = ""
    """Call whose conversation these messages continue; it must have been stored."""
    instructed: bool = False
    """The first message is an instruction for this answer alone."""
    echo: tuple[bytes, ...] = ()
    """What the protocol wants back with the stored answer (`Reply.echo`), in pieces that come again alike; opaque here."""
    likeness: str = ""
    """As CallBegin.likeness."""
    life: int = 0
    """Of the execution; the first request of a new one begins it."""


class Retrieve(msgspec.Struct, frozen=True):
    """A client asks again for the stored answer of an ended call -> Reply, or Refuse `not_found`."""

    conn: str
    execution: str
    call: str
    life: int = 0


class Forget(msgspec.Struct, frozen=True):
    """A stored answer is to be deleted -> Confirm, or Refuse `not_found`. The recorded tokens stay."""

    conn: str
    execution: str
    call: str
    life: int = 0


class Cancel(msgspec.Struct, frozen=True):
    """A call is to be given up -> Confirm; Refuse `not_found`, or `already_ended` when it has an answer."""

    conn: str
    execution: str
    call: str
    life: int = 0


class Leaving(msgspec.Struct, frozen=True):
    """This process ends in order: what it was told before, it was told last."""


class Left(msgspec.Struct, frozen=True):
    """The client closed the connection before its answer was complete."""

    conn: str


class Earlier(msgspec.Struct, frozen=True):
    """What earlier attempts of the run recorded of an execution that may go on: comes before the shard's own records in Restarted."""

    execution: str
    attempts: tuple[int, ...]
    """Those that recorded anything of it."""
    records: tuple[Record, ...]
    """That count (trajectory/lives.py)."""


class MeasureCpu(msgspec.Struct, frozen=True):
    """-> float: CPU seconds of this process so far."""


class Render(msgspec.Struct, frozen=True):
    """-> packed ids. From scratch when `ended` is None, else what follows a recorded answer (ChatFormat.render_suffix)."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    ended: bool | None
    thought: bool = False
    """With `ended`: the recorded context may hold thinking."""


class Parse(msgspec.Struct, frozen=True):
    """-> Answer of these packed output ids."""

    ids: bytes
    stop: tuple[str, ...] = ()
    partial: bool = False
    """More tokens may follow (ChatFormat.parse)."""
    tools: tuple[dict[str, Any], ...] = ()
    """Those of the prompt."""
    call: str = ""
    """Whose output this is: partial parses of one call come with ever more of the same ids."""


class EngineAttempt(msgspec.Struct, frozen=True):
    """Sample on one cell; Progressed(Tokens) as they come, then AttemptEnd. Fails with EngineBusy, CellLost or EngineRefused."""

    call: str
    cell: str
    url: str
    term: int
    version: Version
    """Of the table's row; for engines that do not say what they serve."""
    prompt: tuple[bytes, ...]
    """Packed ids in pieces: prompt, then the tokens so far."""
    max_new_tokens: int
    """What is left of the call's budget."""
    sampling: Sampling
    position: int
    """Output index of the first token this attempt draws."""
    stop_ids: tuple[int, ...]
    deadline_s: float
    stop: tuple[str, ...] = ()


class Tokens(msgspec.Struct, frozen=True):
    """Some new output tokens of an attempt."""

    start: int
    """Output index of the first one, counted over the whole call."""
    ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...]
    """Over the whole call's output index; cover these tokens."""
    oldest_kv: Version
    cached: int = 0
    """Prompt tokens of this attempt the engine did not have to compute."""


class AttemptEnd(msgspec.Struct, frozen=True):
    """The engine finished the attempt itself."""

    finish: str
    """stop, length or abort."""
    digest: str = ""
    """Hex digest over prompt and output ids as the engine computed them (Node.running_digest); empty if it tells none."""
    moved_to: str = ""
    """abort: the cell that has the KV of this call now; empty: none that is known of."""


class KeepAlive(msgspec.Struct, frozen=True):
    """Send a real but empty event of the protocol to a streaming client."""

    conn: str
    call: str


class Say(msgspec.Struct, frozen=True):
    """Send a piece of the answer to a streaming client: reasoning first, then text."""

    conn: str
    call: str
    text: str
    reasoning: str = ""


class Reply(msgspec.Struct, frozen=True):
    """Send the whole answer, or to a streaming client what it lacks of it, and end the response."""

    conn: str
    call: str
    answer: Answer
    """The whole of it, with minted tool-call ids. A streaming client has got a beginning of reasoning and content already."""
    finish: str
    """stop, length or tool_calls."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens of the first attempt that the engine did not have to compute."""
    ids: bytes = b""
    logprobs: bytes = b""
    """Packed output ids and log-probs, when the client asked for them."""
    echo: tuple[bytes, ...] = ()
    """As it came with the request (Arrived.echo), also for `Retrieve`."""
    previous: str = ""
    """Call this one's conversation continues (Arrived.previous)."""
    created: int = 0
    """Unix seconds when the call began."""


class Refuse(msgspec.Struct, frozen=True):
    """End the response with an error of the protocol."""

    conn: str
    status: int
    code: str
    text: str
    facts: dict[str, int] = {}
    """context_length_exceeded: `tokens` and `limit`, for the protocol's own wording."""


class HangUp(msgspec.Struct, frozen=True):
    """Break the connection: its client has not read its last words for long, or missed a piece of what was said before."""

    conn: str


class Confirm(msgspec.Struct, frozen=True):
    """What Forget or Cancel asked for was done (and is durable)."""

    conn: str
