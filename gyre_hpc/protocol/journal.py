"""Journal records: append-only facts about model calls. Delta-coded: a call stores what is new after its parent.

Full context of a call = full(parent) + suffix_ids, where full(c) = context(c) + output(c). A call whose parent is None
was rendered from scratch and suffix_ids is its whole prompt. Output grows by `CallProgress` records; `CallEnd` adds the
last piece. One file per shard, attempt and segment; framing and CRC: trajectory/segment.py and docs/formats.md.
"""

import msgspec

from gyre_hpc.protocol.identity import Version


class Sampling(msgspec.Struct, frozen=True):
    """The distribution tokens are drawn from, and the counter that draws them."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""
    max_new_tokens: int = 0
    key: str = ""
    """Hex of the 128-bit key hash(run seed, execution id, call key)."""


class VersionSpan(msgspec.Struct, frozen=True, array_like=True):
    """Output tokens [start, end) of the call were sampled with `version`."""

    version: Version
    start: int
    end: int


class CallBegin(msgspec.Struct, frozen=True, tag="begin"):
    call: str
    """`<execution>/<ordinal>`, minted by the gateway."""
    execution: str
    parent: str | None
    suffix_ids: bytes
    """int32, see module."""
    role: str
    """main, sub_agent, compaction or helper."""
    thread: str
    """Value of the harness's thread header, empty if it has none."""
    branch: str
    """Why it did not extend the newest call of its thread: `` (it did), root, compaction, sub_agent, edited_history,
    template_drift, retry."""
    sampling: Sampling
    requested: dict[str, float | int | str]
    """Sampling the harness asked for."""
    request_hash: str
    """Hex digest of (execution, thread, canonical JSON without volatile fields): identity of the call."""
    time: float
    """Unix seconds."""
    tool_owner: tuple[str, ...] = ()
    """Minted tool-call ids this prompt answers."""
    context: str = ""
    """Hex digest of the messages and tools before the answer; recorded answers in it count by their call, not their text."""
    changed: bool = False
    """The harness sent the parent's answer back in other words (found by its ids); the recorded tokens are the context all the same."""


class CallProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Output tokens [start, start + n)."""

    call: str
    start: int
    output_ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...]
    oldest_kv: Version
    """Oldest version whose KV these tokens attended to."""
    cell: str
    time: float


class CallEnd(msgspec.Struct, frozen=True, tag="end"):
    call: str
    finish: str
    """stop, length, tool_calls, abandoned (client never came back), failed."""
    num_output: int
    malformed: int
    """Tool calls in the output that could not be parsed."""
    tool_calls: tuple[str, ...]
    """Minted ids, in order."""
    digest: str
    """Running hash over input and output ids as the engine saw and produced them."""
    cells: tuple[str, ...]
    """Cells that served it, in order; more than one = continued elsewhere."""
    num_reprefilled: int
    time: float
    text: str = ""
    """Hex digest of the answer's text as delivered: finds this call again when the answer has no tool call."""


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """The whole answer reached the client. Only delivered calls are trained on."""

    call: str
    time: float


class ExecutionEnd(msgspec.Struct, frozen=True, tag="execution_end"):
    """No more calls of this execution are taken by this shard."""

    execution: str
    time: float


Record = CallBegin | CallProgress | CallEnd | Delivered | ExecutionEnd

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """Record -> msgpack payload (without framing)."""
    return _ENCODER.encode(record)


def decode(data: bytes) -> Record:
    """Inverse of encode. Raises msgspec.ValidationError."""
    return _DECODER.decode(data)
