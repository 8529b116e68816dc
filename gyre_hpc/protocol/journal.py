"""Journal records: append-only facts about model calls. Delta-coded: a call stores what is new after its parent.

Full context of a call = full(parent) + suffix_ids, where full(c) = context(c) + output(c). A call whose parent is None
was rendered from scratch and suffix_ids is its whole prompt. Output grows by `CallProgress` records; `CallEnd` adds the
last piece. One file per shard, attempt and segment; framing and CRC: trajectory/segment.py and docs/formats.md.
"""

import msgspec

from gyre_hpc.protocol.identity import Version


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The distribution tokens are drawn from, and the counter that draws them."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""
    max_new_tokens: int = 0
    key: str = ""
    """Hex of the 128-bit key hash(run seed, execution id, call key)."""
    stop: tuple[str, ...] = ()
    """Stop sequences the harness asked for: the text of the answer ends before the first of them."""


class VersionSpan(msgspec.Struct, frozen=True, array_like=True):
    """Output tokens [start, end) of the call were sampled with `version`."""

    version: Version
    start: int
    end: int


class CallBegin(msgspec.Struct, frozen=True, tag="begin", omit_defaults=True):
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
    """Why it does not simply go on from its parent's answer: `` (it does), root, compaction, sub_agent, edited_history,
    template_drift, retry, diverged (another life of the execution, and what was recorded goes on in another way)."""
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
    protocol: str = ""
    """chat_completions, responses or messages."""
    thought: bool = False
    """The context holds thinking."""
    logprobs: bool = False
    """The client asked for the log-probs of what it gets."""
    likeness: str = ""
    """Hex digest of the request without what differs between two processes that do the same (times, random names): finds this call in
    a later life of its execution; empty: it is never replayed."""


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


class CallEnd(msgspec.Struct, frozen=True, tag="end", omit_defaults=True):
    call: str
    finish: str
    """stop, length, tool_calls, abandoned (client never came back), failed."""
    num_output: int
    malformed: int
    """Tool calls in the output that could not be parsed."""
    tool_calls: tuple[str, ...]
    """Minted ids, in order; the last `malformed` of them belong to calls that could not be parsed."""
    digest: str
    """Running hash over input and output ids as they are recorded."""
    cells: tuple[str, ...]
    """Cells that served it, in order; more than one = continued elsewhere."""
    num_reprefilled: int
    time: float
    text: str = ""
    """Hex digest of the answer's text as delivered: finds this call again when the answer has no tool call."""
    malformed_spans: tuple[tuple[int, int], ...] = ()
    """Output tokens [start, end) of each tool call that could not be parsed."""
    engine_digest: str = ""
    """The engine's own running hash where it differs from `digest`: it saw or produced other ids than are recorded. Such
    a call is never trained on."""
    thought: bool = False
    """The answer holds thinking."""
    stopped_by: str = ""
    """The stop sequence that ended it."""
    num_cached: int = 0
    """Prompt tokens of its first attempt that the engine did not have to compute."""


class Delivered(msgspec.Struct, frozen=True, tag="delivered", omit_defaults=True):
    """The whole answer reached the client, in this life of its execution. Only calls delivered in the last life are trained on."""

    call: str
    time: float
    life: int = 0


class ExecutionEnd(msgspec.Struct, frozen=True, tag="execution_end"):
    """No more calls of this execution are taken by this shard."""

    execution: str
    time: float


class Echoed(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A piece of what a protocol wants back. A long one is written once per execution, later ones name it alone."""

    digest: bytes
    """Empty for a short piece."""
    data: bytes = b""
    """Empty where an earlier record of the execution has it."""


class Stored(msgspec.Struct, frozen=True, tag="stored", omit_defaults=True):
    """The answer of `call` can be fetched again and gone on from; counts once the call's end is durable, which follows it."""

    call: str
    messages: bytes
    """msgpack of the request's own chat.base.Message values (what is new after the conversation of `previous`) after `base`."""
    answer: bytes
    """msgpack of the chat.base.Answer as delivered."""
    previous: str = ""
    """Stored call whose conversation this one continues."""
    echo: bytes = b""
    """What the protocol wants back with it, in format 2."""
    time: float = 0.0
    base: bytes = b""
    """Running digest of the messages it begins with, which earlier records of the execution hold; empty if it holds all of them."""
    echoes: tuple[Echoed, ...] = ()
    """What the protocol wants back with it."""
    instructed: bool = False
    """The first of its messages is an instruction for this answer alone."""


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """The stored answer is neither given out nor gone on from any more. The recorded tokens stay."""

    call: str
    time: float


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What counts of a call that earlier attempts recorded."""

    call: str
    num_output: int
    finish: str = ""
    """Of its end; empty: it had none."""


class TakenUp(msgspec.Struct, frozen=True, tag="taken_up", omit_defaults=True):
    """Another life of the execution begins: a new process asks again for what was recorded.

    What records of earlier attempts say beyond `known`, and all that attempts not in `attempts` say, counts for nothing: their
    processes may still have been writing (trajectory/lives.py). Records of this attempt count whole.
    """

    execution: str
    life: int
    time: float
    attempts: tuple[int, ...] = ()
    known: tuple[Known, ...] = ()
    first_version: Version | None = None
    """That sampled its first token in an earlier attempt; None: it has none, or none of an earlier attempt."""
    num_tokens: int = 0
    """Sampled in the lives before this one and recorded: what is at stake."""
    seconds: float = 0.0
    """That its calls took."""


class Replayed(msgspec.Struct, frozen=True, tag="replayed", omit_defaults=True):
    """A request of this life is a call of an earlier one, and gets what was recorded; durable before any of it leaves."""

    call: str
    life: int
    request_hash: str
    """Of the new request."""
    thread: str
    """Of the new request."""
    context: str
    """Digest of the new request's context; the call is found under it from now on."""
    time: float
    num_tokens: int = 0
    """Output tokens that need not be sampled again."""
    seconds: float = 0.0
    """That they took."""


Record = CallBegin | CallProgress | CallEnd | Delivered | ExecutionEnd | Stored | Forgotten | TakenUp | Replayed
BY_EXECUTION = CallBegin, ExecutionEnd, TakenUp
"""Records that name their execution; the others name a call."""


def execution_of(record: Record) -> str:
    """The execution that a record is about."""
    return record.execution if isinstance(record, BY_EXECUTION) else record.call.rpartition("/")[0]


CALLS, ENDED = 1, 2
"""Marks of an execution: there is a record of a call of it; its shard takes no more."""


def marks_of(record: Record) -> int:
    """What a record says of its execution."""
    return ENDED if isinstance(record, ExecutionEnd) else 0 if isinstance(record, TakenUp) else CALLS


class _Head(msgspec.Struct, frozen=True):
    """The few fields of any record that say what it is about."""

    type: str
    execution: str = ""
    call: str = ""


_MARKS = {"execution_end": ENDED, "taken_up": 0}
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)
_HEADS = msgspec.msgpack.Decoder(_Head)


def encode(record: Record) -> bytes:
    """Record -> msgpack payload (without framing)."""
    return _ENCODER.encode(record)


def decode(data: bytes | memoryview) -> Record:
    """Inverse of encode. Raises msgspec.ValidationError."""
    return _DECODER.decode(data)


def decode_head(data: bytes | memoryview) -> tuple[str, int]:
    """(execution, marks) of an encoded record, without the rest of it. Raises msgspec.ValidationError."""
    head = _HEADS.decode(data)
    return head.execution or head.call.rpartition("/")[0], _MARKS.get(head.type, CALLS)
