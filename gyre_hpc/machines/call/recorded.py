"""The tree of recorded tokens of one execution: the truth about contexts. Messages only find a node in it.

A request is walked from its first message on with a running digest. Where an assistant turn is the recorded answer of a
call that was asked in exactly this context, the digest goes on from that call's identity, not from the text that was sent
back: so harnesses may re-serialise arguments, and recorded ids stay the context. The last answer recognised is the parent.

Invariants:
  - a node is found only under the digest of everything before it, never by its text alone;
  - ids of a context = suffixes and outputs along parents, never rendered twice.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.call.branching import Branches
from gyre_hpc.machines.call.shelf import Shelf
from gyre_hpc.machines.call.turns import SIZE, Turn, chained
from gyre_hpc.machines.call.walks import Walk, Walks
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, Sampling, Stored

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


class RecordedTree:
    """All calls of one execution."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.next_ordinal = 0
        self._by_context: defaultdict[str, list[Node]] = defaultdict(list)
        self._by_request: defaultdict[str, list[Node]] = defaultdict(list)
        self._prompts: Counter[bytes] = Counter()
        self._walks = Walks()
        self.rendering: dict[str, None] = {}
        """Calls that are no nodes yet."""
        self.branches = Branches()
        self.num_sampled = 0
        """Output tokens of all calls."""
        self.stored: dict[str, Stored] = {}
        """By call; of calls that ended, and of some whose end is not durable yet."""
        self.shelf = Shelf()
        """What stored answers share."""
        self.untold: dict[str, tuple[str, float]] = {}
        """Cancelled calls by their request, and until when: their clients could not be told and ask again."""
        self.forgotten: set[str] = set()
        """Stored answers that are not given out any more."""

    def find(self, turns: Sequence[Turn], tools_digest: bytes) -> Found:
        """O(number of messages); of a conversation that grew, only of what came since its last recorded answer but one."""
        before = self._walks.longest(tools_digest, turns)
        if before is None:
            state, parent, later, changed = chained(b"tools", tools_digest), None, 0, False
        else:
            state, parent, later, changed = before.parent.state, before.parent, len(before.turns), before.changed
        passed, num_passed, is_settled = list[str](), 0, True
        for place in range(later, len(turns)):
            turn, node = turns[place], None
            if turn.role == "assistant":
                passed.append(state.hex())
                node = self._answer_in(passed[-1], turn)
                is_settled = is_settled and self._is_settled(passed[-1])
            if node is None:
                state = chained(state, turn.digest, turn.thinking) if turn.thinking else chained(state, turn.digest)
            else:
                state, parent, later = node.state, node, place + 1
                changed = bool(node.turn) and node.turn != turn.digest
                num_passed = len(passed)
        if parent is not None and num_passed and is_settled:
            known = before.passed if before is not None else frozenset[str]()
            whole = known.union(passed[:num_passed])
            self._walks.keep(Walk(tools_digest, tuple(turns[:later]), parent, changed, whole), before)
        opening = turns[0].digest if turns and turns[0].role == "system" else b""
        has_answers = any(turn.role == "assistant" for turn in turns)
        return Found(parent=parent, later=later, context=state.hex(), changed=changed, opening=opening, has_answers=has_answers)

    def same_request(self, request_hash: str, taken: frozenset[str]) -> Node | None:
        """The call an identical request belongs to: the oldest one that nobody waits for (not in `taken`) and nothing builds on."""
        for node in self._by_request.get(request_hash, ()):
            if node.call not in taken and not node.num_children:
                return node
        return None

    def hash_prompt(self, parent: Node | None, suffix: bytes) -> Any:
        """blake2b over parent's full ids and the suffix."""
        if parent is None:
            hasher = hashlib.blake2b(digest_size=SIZE)
        else:
            hasher = parent.hasher.copy()
            hasher.update(parent.output)
        hasher.update(suffix)
        return hasher

    def equal_prompts(self, hasher: Any) -> int:
        """How many calls so far had the very same prompt ids."""
        return self._prompts[hasher.digest()]

    def add(self, begin: CallBegin, opening: bytes | None = None) -> Node:
        """A begun call becomes a node. Raises KeyError if its parent is unknown. `opening`: Found.opening, if known."""
        parent = self.nodes[begin.parent] if begin.parent is not None else None
        node = Node(
            call=begin.call,
            execution=begin.execution,
            parent=parent,
            suffix=begin.suffix_ids,
            role=begin.role,
            thread=begin.thread,
            request_hash=begin.request_hash,
            context=begin.context,
            sampling=begin.sampling,
            hasher=self.hash_prompt(parent, begin.suffix_ids),
            num_prompt=len(begin.suffix_ids) // 4 + (parent.num_prompt + parent.num_output if parent is not None else 0),
            began_at=begin.time,
            thought=begin.thought,
            logprobs=bytearray() if begin.logprobs else None,
        )
        self.branches.add(node, begin.branch, opening)
        if parent is not None:
            parent.num_children += 1
        self.nodes[node.call] = node
        self.next_ordinal = max(self.next_ordinal, node.ordinal + 1)
        self._by_context[node.context].append(node)
        self._walks.forget(node.context)
        self._by_request[node.request_hash].append(node)
        self._prompts[node.hasher.digest()] += 1
        return node

    def end(self, end: CallEnd) -> Node:
        """The call ended (again, when it had been taken up once more)."""
        node = self.nodes[end.call]
        node.finish, node.text, node.tool_calls = end.finish, end.text, end.tool_calls
        node.ended_at = end.time
        node.engine_digest, node.num_cached = end.engine_digest, end.num_cached
        node.thought |= end.thought
        return node

    def keep(self, record: Stored) -> None:
        """Its answer can be fetched and gone on from, once the call has ended."""
        self.stored[record.call] = record
        self.shelf.take(record)
        self.forgotten.discard(record.call)

    def is_kept(self, call: str) -> bool:
        """Stored, and not forgotten since."""
        return call in self.stored and call not in self.forgotten

    def _answer_in(self, context: str, turn: Turn) -> Node | None:
        """The recorded call whose answer `turn` is; equal ones go to the one least built upon, unless the turn names its call."""
        if turn.call:
            known = self.nodes.get(turn.call)
            return known if known is not None and known.is_answered and known.context == context else None
        nodes = self._by_context.get(context, ())
        if len(nodes) == 1:
            return nodes[0] if _is_answer(nodes[0], turn) else None
        matches = [node for node in nodes if _is_answer(node, turn)]
        return min(matches, key=lambda node: (not node.delivered, node.num_children), default=None)

    def _is_settled(self, context: str) -> bool:
        """Which answer a turn is here will not change, unless another call begins here."""
        nodes = self._by_context.get(context, ())
        return not nodes or (len(nodes) == 1 and nodes[0].is_answered)


def _is_answer(node: Node, turn: Turn) -> bool:
    if not node.is_answered:
        return False
    if node.tool_calls or turn.calls:
        return node.tool_calls == turn.calls
    return node.text == turn.text
