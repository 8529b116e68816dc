"""What the simulated model samples, and a chat format as small as can be. All pure: a token follows from its key and position.

Rendered messages are ids below 1000, sampled text ids 1000 to 1025; STOP, TOOL and BAD (a call that cannot be parsed) are marks.
"""

import zlib
from collections.abc import Sequence

from gyre_hpc.chat.base import Answer, Malformed, Message, ToolCall
from gyre_hpc.protocol.tensors import pack_ids

STOP, TOOL, BAD, FIRST_LETTER = 2000, 2001, 2002, 1000
LONGEST = 14
"""Tokens of the longest answer that ends by itself."""


def draw(key: str, position: int) -> int:
    """The token of a call at a position."""
    seed = zlib.crc32(key.encode())
    end = 2 + seed % (LONGEST - 2)
    if position >= end:
        return STOP
    if position == end - 1 and seed % 3 == 0:
        return BAD if seed % 4 == 0 else TOOL
    return FIRST_LETTER + zlib.crc32(f"{key}:{position}".encode()) % 26


def render(messages: Sequence[Message]) -> bytes:
    """Packed ids of a whole prompt."""
    return pack_ids([3, *(id for message in messages for id in _ids(message)), 4])


def render_suffix(messages: Sequence[Message], ended: bool) -> bytes:
    """Packed ids of what follows a recorded answer."""
    return pack_ids([*(() if ended else (STOP,)), *(id for message in messages for id in _ids(message)), 4])


def stop_id(stop: Sequence[str]) -> int | None:
    """The token that is the one stop sequence of a call: a letter."""
    return FIRST_LETTER + ord(stop[0]) - 97 if stop else None


def parse(ids: Sequence[int], stop: Sequence[str] = ()) -> Answer:
    last = stop_id(stop)
    is_cut = last is not None and last in ids
    kept = ids[: ids.index(last)] if last is not None and is_cut else ids
    text = "".join(chr(97 + id - FIRST_LETTER) for id in kept if FIRST_LETTER <= id < FIRST_LETTER + 26)
    calls = tuple(ToolCall(name="tool", arguments="{}") for id in kept if id == TOOL)
    bad = tuple(
        Malformed(raw="?", start=place, end=place + 1, reason="bad", name="tool" if ids[0] % 2 else "")
        for place, id in enumerate(kept)
        if id == BAD
    )
    return Answer(content=text, tool_calls=calls, malformed=bad, stopped_by=stop[0] if is_cut else "")


def _ids(message: Message) -> tuple[int, int, int]:
    digest = zlib.crc32(f"{message.role}\n{message.content}\n{message.tool_call_id}".encode())
    return 10 + digest % 400, 500 + digest // 400 % 400, 5
