"""Digests of messages, each message digested once: a conversation that grows is compared with what it was, and only what is new is read.

Comparing a megabyte of text costs microseconds, digesting it milliseconds. A memory of what can be made again: losing it costs time alone.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.turns import Turn, digest_turns

MOST_CHARS = 256 << 20
"""Of all conversations kept together."""
_MOST_BRANCHES = 3
"""Conversations of one thread: its main line, and what a harness asks beside it under the same name."""


@dataclass(frozen=True, slots=True)
class _Known:
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    num_chars: int


class TurnMemory:
    """digest_turns with a memory per execution and thread."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars, self._num_chars = most_chars, 0
        self._known: OrderedDict[tuple[str, str], list[_Known]] = OrderedDict()
        """The thread used last is last, and so is the conversation of a thread."""

    def turns(self, execution: str, thread: str, messages: Sequence[Message]) -> tuple[Turn, ...]:
        """One Turn per message."""
        branches = self._known.setdefault((execution, thread), [])
        same, before = max(((_common(known.messages, messages), known) for known in branches), key=_first, default=(0, None))
        turns = digest_turns(messages[same:])
        kept = tuple(messages)
        if before is not None and same:
            # The strings kept before serve on; those that came now are let go.
            turns, kept = before.turns[:same] + turns, before.messages[:same] + kept[same:]
        if before is not None and same and same >= len(before.messages) - 2:
            self._drop(branches, before)
        self._keep(execution, thread, branches, _Known(kept, turns, sum(len(message.content) + 100 for message in kept)))
        return turns

    def _keep(self, execution: str, thread: str, branches: list[_Known], known: _Known) -> None:
        branches.append(known)
        self._num_chars += known.num_chars
        self._known.move_to_end((execution, thread))
        if len(branches) > _MOST_BRANCHES:
            self._drop(branches, branches[0])
        while self._num_chars > self._most_chars:
            _, oldest = self._known.popitem(last=False)
            self._num_chars -= sum(branch.num_chars for branch in oldest)

    def _drop(self, branches: list[_Known], known: _Known) -> None:
        branches[:] = [branch for branch in branches if branch is not known]
        self._num_chars -= known.num_chars


def _first(pair: tuple[int, _Known]) -> int:
    return pair[0]


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """How many messages both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine is not theirs and mine != theirs:
            break
        count += 1
    return count
