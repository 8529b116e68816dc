"""One call as recorded, and where a request belongs among them (recorded.py)."""

from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.call.turns import chained
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Sampling

ANSWERED = frozenset({"stop", "length", "tool_calls"})


@dataclass(slots=True, eq=False)
class Node:
    """One call as recorded."""

    call: str
    execution: str
    parent: "Node | None"
    suffix: bytes
    role: str
    thread: str
    request_hash: str
    context: str
    sampling: Sampling
    output: bytearray = field(default_factory=bytearray)
    """Packed ids received so far; a prefix of them is journaled."""
    cells: list[str] = field(default_factory=list)
    """Cells that gave it tokens, in order; its KV is at the last one, if it did not move since."""
    moved_to: str = ""
    """Cell that its KV went to after the last one of `cells` had it; empty: it did not move."""
    term: int | None = None
    """Of that cell when its KV came to be there; None: not known any more."""
    newest: Version | None = None
    """Newest version that sampled a token of it."""
    num_reprefilled: int = 0
    finish: str = ""
    text: str = ""
    tool_calls: tuple[str, ...] = ()
    turn: bytes = b""
    """Digest of its answer as a message; empty after a restart."""
    delivered: bool = False
    num_children: int = 0
    is_continued: bool = False
    """A call of the same line goes on from its answer (branching.py)."""
    hasher: Any = None
    """blake2b over the packed prompt ids."""
    num_prompt: int = 0
    """Tokens of its prompt."""
    ended_at: float = 0.0
    """Unix time of its newest end, as read from the journal."""
    began_at: float = 0.0
    """Unix time."""
    thought: bool = False
    """Context or answer hold thinking."""
    logprobs: bytearray | None = None
    """Packed log-probs of the output, kept for a client that asked for them."""
    engine_digest: str = ""
    """An engine's running hash that was not ours: what is recorded is not what it saw or produced."""
    num_cached: int = 0
    """Prompt tokens of the first attempt that the engine did not have to compute."""
    branch: str = ""
    likeness: str = ""
    life: int = 0
    """In which it was asked for last."""
    earlier_contexts: tuple[str, ...] = ()
    """`context` in the wordings of the lives before."""
    first_version: Version | None = None
    """That sampled its first token."""
    heard_at: float = 0.0
    """Unix time of its newest record."""
    spent_s: float = 0.0
    """From its beginning (in each life anew) to its newest token or its end."""

    @property
    def ordinal(self) -> int:
        return int(self.call.rpartition("/")[2])

    @property
    def num_output(self) -> int:
        return len(self.output) // 4

    @property
    def is_answered(self) -> bool:
        return self.finish in ANSWERED

    @property
    def state(self) -> bytes:
        """Running digest after this call's answer."""
        return chained(b"call", self.call.encode())

    def prompt(self) -> list[bytes]:
        """Packed prompt ids in pieces, oldest first."""
        pieces, node = [self.suffix], self.parent
        while node is not None:
            pieces += [bytes(node.output), node.suffix]
            node = node.parent
        return pieces[::-1]

    def last_id(self) -> int | None:
        """Newest output id."""
        return int.from_bytes(self.output[-4:], "little", signed=True) if self.output else None

    def took(self, until: float) -> None:
        """It was worked on up to this unix time."""
        self.spent_s += max(until - self.heard_at, 0.0)
        self.heard_at = until

    def running_digest(self) -> str:
        """Hex digest over prompt and output ids."""
        hasher = self.hasher.copy()
        hasher.update(self.output)
        return str(hasher.hexdigest())


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Where a request belongs."""

    parent: Node | None
    later: int
    """Index of the first message after the parent's answer; 0 without a parent."""
    context: str
    """Hex digest of the request's whole context."""
    drifted: bool = False
    """There was a parent, but the template does not extend its answer."""
    changed: bool = False
    """The parent's answer came back in other words."""
    opening: bytes = b""
    """Digest of the system turn the request begins with; empty without one."""
    has_answers: bool = False
    """Some turn of the request is an assistant's."""
