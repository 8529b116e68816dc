"""Digests of messages, each message digested once: a conversation that grows is compared with what it was, and only what is new is read.

Comparing a megabyte of text costs microseconds, digesting it milliseconds. A memory of what can be made again: losing it costs time alone.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.turns import SIZE, Canonical, Turn, digest_turns

MOST_CHARS = 256 << 20
"""Of all conversations kept together."""
_MOST_BRANCHES = 3
"""Conversations of one thread: its main line, and what a harness asks beside it under the same name."""
_PER_MESSAGE = 100
"""What a message costs beyond its text."""


@dataclass(frozen=True, slots=True)
class Digested:
    """A conversation in digests."""

    turns: tuple[Turn, ...]
    """One per message."""
    whole: bytes
    """Over all of them, thinking included."""
    likeness: bytes
    """The same of their canonical forms."""


@dataclass(frozen=True, slots=True)
class _Known:
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    num_chars: int
    hasher: Any
    """blake2b over all turns."""
    likeness: Any
    """blake2b over their canonical forms."""


_NOTHING = _Known((), (), 0, hashlib.blake2b(digest_size=SIZE), hashlib.blake2b(digest_size=SIZE))


class TurnMemory:
    """digest_turns with a memory per execution and thread."""

    def __init__(self, most_chars: int = MOST_CHARS, canonical: Canonical = str) -> None:
        self._most_chars, self._num_chars = most_chars, 0
        self._canonical = canonical
        self._known: OrderedDict[tuple[str, str], list[_Known]] = OrderedDict()
        """The thread used last is last, and so is the conversation of a thread."""
        self._threads: dict[str, set[str]] = {}
        """By execution."""

    def digested(self, execution: str, thread: str, messages: Sequence[Message]) -> Digested:
        """What digest_turns says of them."""
        branches = self._known.setdefault((execution, thread), [])
        same, before = max(((_common(known.messages, messages), known) for known in branches), key=_first, default=(0, _NOTHING))
        # The strings kept before serve on; those that came now are let go.
        known = _extended(_beginning(before, same), messages[same:], self._canonical)
        if same and same >= len(before.messages) - 2:
            self._drop(branches, before)
        self._keep(execution, thread, branches, known)
        return Digested(known.turns, known.hasher.digest(), known.likeness.digest())

    def forget(self, execution: str) -> None:
        """It has ended."""
        for thread in self._threads.pop(execution, ()):
            self._num_chars -= sum(branch.num_chars for branch in self._known.pop((execution, thread)))

    def _keep(self, execution: str, thread: str, branches: list[_Known], known: _Known) -> None:
        branches.append(known)
        self._num_chars += known.num_chars
        self._known.move_to_end((execution, thread))
        self._threads.setdefault(execution, set()).add(thread)
        if len(branches) > _MOST_BRANCHES:
            self._drop(branches, branches[0])
        while self._num_chars > self._most_chars:
            (oldest, its_thread), dropped = self._known.popitem(last=False)
            self._num_chars -= sum(branch.num_chars for branch in dropped)
            self._threads[oldest].discard(its_thread)
            if not self._threads[oldest]:
                del self._threads[oldest]

    def _drop(self, branches: list[_Known], known: _Known) -> None:
        branches[:] = [branch for branch in branches if branch is not known]
        self._num_chars -= known.num_chars


def _first(pair: tuple[int, _Known]) -> int:
    return pair[0]


def _beginning(known: _Known, num: int) -> _Known:
    """Its first messages."""
    if num == len(known.messages):
        return known
    messages, turns = known.messages[:num], known.turns[:num]
    return _Known(messages, turns, _num_chars(messages), _with(_NOTHING.hasher, turns), _with(_NOTHING.likeness, _alike(turns)))


def _extended(known: _Known, messages: Sequence[Message], canonical: Canonical) -> _Known:
    turns = digest_turns(messages, canonical)
    return _Known(
        (*known.messages, *messages), known.turns + turns, known.num_chars + _num_chars(messages), _with(known.hasher, turns),
        _with(known.likeness, _alike(turns)),
    )  # fmt: skip


def _alike(turns: Sequence[Turn]) -> Sequence[Turn]:
    """In their canonical forms."""
    return [msgspec.structs.replace(turn, digest=turn.likeness) if turn.likeness else turn for turn in turns]


def _with(hasher: Any, turns: Sequence[Turn]) -> Any:
    """A copy that knows these, too. Digests have one length, and a byte tells whether thinking follows: no two sequences are alike."""
    hasher = hasher.copy()
    hasher.update(b"".join([part for turn in turns for part in (turn.digest, b"t" if turn.thinking else b".", turn.thinking)]))
    return hasher


def _num_chars(messages: Sequence[Message]) -> int:
    return sum(len(message.content) + _PER_MESSAGE for message in messages)


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both begin with."""
    if tuple(other[: len(one)]) == one:
        return len(one)
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and mine != theirs:
            break
        count += 1
    return count
