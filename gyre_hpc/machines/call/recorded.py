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
from typing import Any

from gyre_hpc.machines.call.branching import Branches
from gyre_hpc.machines.call.node import Found, Node
from gyre_hpc.machines.call.recording import Recording
from gyre_hpc.machines.call.shelf import Shelf
from gyre_hpc.machines.call.turns import SIZE, Turn, chained
from gyre_hpc.machines.call.walks import Walk, Walks
from gyre_hpc.protocol.journal import CallBegin, CallEnd, Replayed, Stored

DIVERGED = "diverged"
"""CallBegin.branch of the first call of a life that was recorded otherwise."""


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
        self.life = 0
        self.recording = Recording()
        """Calls of earlier lives that nobody asked for in this one."""
        self.has_diverged = False
        """In this life."""

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
            branch=begin.branch,
            likeness=begin.likeness,
            life=self.life,
            heard_at=begin.time,
        )
        self.nodes[node.call] = node
        self.next_ordinal = max(self.next_ordinal, node.ordinal + 1)
        self._prompts[node.hasher.digest()] += 1
        self.has_diverged |= begin.branch == DIVERGED
        self._show(node, opening)
        return node

    def _show(self, node: Node, opening: bytes | None) -> None:
        """It can be found and gone on from."""
        self.branches.add(node, node.branch, opening)
        if node.parent is not None:
            node.parent.num_children += 1
        for context in dict.fromkeys((node.context, *node.earlier_contexts)):
            # What is kept of its conversation has the wording of the life that kept it.
            self._by_context[context].append(node)
            self._walks.forget(context)
        self._by_request[node.request_hash].append(node)

    def begin_life(self, life: int) -> None:
        """Rewind: calls so far are there again once this life asks for them; their tokens stay."""
        self.life, self.has_diverged = life, False
        self._by_context, self._by_request = defaultdict(list), defaultdict(list)
        self._walks, self.branches = Walks(), Branches()
        self.untold, self.forgotten = {}, set()
        for node in self.nodes.values():
            node.delivered, node.num_children, node.is_continued = False, 0, False
        self.recording = Recording(self.nodes.values())

    def replay(self, record: Replayed, opening: bytes | None = None) -> Node:
        """A call of an earlier life is asked for again, in its new wording. Raises KeyError if it is unknown."""
        node = self.nodes[record.call]
        self.recording.claim(node, record.thread)
        node.earlier_contexts = tuple(dict.fromkeys((*node.earlier_contexts, node.context)))
        node.context, node.request_hash, node.thread = record.context, record.request_hash, record.thread
        node.life, node.heard_at = record.life, record.time
        self._show(node, opening)
        return node

    def end(self, end: CallEnd) -> Node:
        """The call ended (again, when it had been taken up once more)."""
        node = self.nodes[end.call]
        node.finish, node.text, node.tool_calls = end.finish, end.text, end.tool_calls
        node.ended_at = end.time
        node.engine_digest, node.num_cached = end.engine_digest, end.num_cached
        node.thought |= end.thought
        node.took(end.time)
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
            is_here = known is not None and known.is_answered and known in self._by_context.get(context, ())
            return known if is_here else None
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
