"""Messages of growing conversations, each read once: what a request begins with is compared with what was read before.

A memory of what can be made again: losing it costs time alone.
"""

from collections import OrderedDict
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.gateway.protocols.chat_messages import Read, read_messages

MOST_CHARS = 256 << 20
"""Of all conversations kept together."""
_MOST_BRANCHES = 3
"""Conversations of one execution that grow side by side."""
_PER_MESSAGE = 400
"""What a message costs beyond its text."""


class ChatMemory:
    """read_messages with a memory per execution."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars, self._num_chars = most_chars, 0
        self._known: OrderedDict[str, list[tuple[Read, int]]] = OrderedDict()
        """With their sizes. The execution used last is last, and so is the conversation of an execution."""

    def messages(self, execution: str, raw: Any) -> tuple[Message, ...]:
        """Raises RequestError naming the field."""
        branches = self._known.get(execution, [])
        entry = max((entry for entry in branches if _begins(raw, entry[0].raw)), key=_length, default=None)
        read = read_messages(raw, entry[0] if entry is not None else None)
        self._num_chars -= sum(size for _, size in branches)
        branches = [other for other in branches if other is not entry][1 - _MOST_BRANCHES :]
        first, size = (len(entry[0].turns), entry[1]) if entry is not None else (0, 0)
        branches.append((read, size + sum(len(turn.content) + _PER_MESSAGE for turn in read.turns[first:])))
        self._known[execution] = branches
        self._known.move_to_end(execution)
        self._num_chars += sum(size for _, size in branches)
        while self._num_chars > self._most_chars:
            _, oldest = self._known.popitem(last=False)
            self._num_chars -= sum(size for _, size in oldest)
        return read.turns

    def forget(self, execution: str) -> None:
        """It has ended."""
        self._num_chars -= sum(size for _, size in self._known.pop(execution, ()))


def _begins(raw: Any, known: list[Any]) -> bool:
    return isinstance(raw, list) and raw[: len(known)] == known


def _length(entry: tuple[Read, int]) -> int:
    return len(entry[0].raw)
