"""Request bodies: distinct short ones, and conversations of which every request is the next turn."""

import itertools
import json
import os
import random
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.gateway.plan import BODY_1M, BODY_2K


@cache
def source_text(size: int) -> str:
    """`size` characters of the standard library's own source: text and code as agents read them."""
    pieces, length = [], 0
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        pieces.append(path.read_text(encoding="utf-8", errors="ignore").encode("ascii", "ignore").decode())
        length += len(pieces[-1])
        if length >= size:
            return "".join(pieces)[:size]
    return ("".join(pieces) * (size // length + 1))[:size]


def encode(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "mock", "messages": messages, "max_tokens": 4096, **more}, separators=(",", ":")).encode()


class ShortBodies:
    """Bodies of exactly BODY_2K bytes, no two alike: a gateway may take equal ones for retries."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        system = {"role": "system", "content": "You are a coding agent."}
        room = BODY_2K - len(encode([system, {"role": "user", "content": "0" * 12}]))
        text = source_text(8000)
        length = next(n for n in range(room, 0, -1) if len(json.dumps(text[:n])) - 2 <= room)
        pad = "." * (room - (len(json.dumps(text[:length])) - 2))
        body = encode([system, {"role": "user", "content": "#" * 12 + text[:length] + pad}])
        self._before, _, self._after = body.partition(b"#" * 12)
        assert len(body) == BODY_2K

    def next(self) -> bytes:
        return self._before + b"%012d" % next(self._numbers) + self._after


class NewBodies:
    """As long as ShortBodies', but no line of any body was ever in another one: the tokenizer's memory helps with nothing."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._words = sorted(set(re.findall(r"[A-Za-z_]{2,12}", source_text(200_000))))
        self._edges = encode([{"role": "user", "content": "#"}]).split(b"#")

    def next(self) -> bytes:
        room = BODY_2K - sum(map(len, self._edges))
        words = self._random.choices(self._words, k=room // 3)
        # A line of code is some six words; every one begins with a number of its own.
        lines = [f"{self._random.getrandbits(40)} = {' '.join(words[at : at + 6])}" for at in range(0, len(words), 6)]
        return self._edges[0] + json.dumps("\n".join(lines))[1 : 1 + room].rstrip("\\").encode().ljust(room, b".") + self._edges[1]


class Conversation:
    """One long conversation; `next` is its next turn: all that was said, the last answer, one more message of the user."""

    def __init__(self, name: str, answer: str, size: int = BODY_1M, later: int = 220) -> None:
        """`size`: bytes of the first body. `later`: characters of each later message."""
        messages = _history(name, size)
        self._prefix = encode(messages)[: -len(b'],"max_tokens":4096}')]
        self._answer = json.dumps(answer)
        self._later, self._turn = later, 0

    def next(self) -> bytes:
        if self._turn:
            text = json.dumps(f"Turn {self._turn:06d}. " + source_text(1_400_000)[self._turn * 37 : self._turn * 37 + self._later])
            self._prefix += f',{{"role":"assistant","content":{self._answer}}},{{"role":"user","content":{text}}}'.encode()
        self._turn += 1
        return self._prefix + b'],"max_tokens":4096}'


def _history(name: str, size: int) -> list[dict[str, Any]]:
    """System, then user and assistant in turn, in messages of a few thousand characters; encodes to `size` bytes."""
    text, each = source_text(1_400_000), max(200, size // 200)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent."},
        {"role": "user", "content": f"Task {name}. "},
    ]
    # Every conversation begins elsewhere: nothing of it has been seen before.
    at, length = zlib.crc32(name.encode()) % 300_000, len(encode(messages))
    while length + each < size:
        role = "assistant" if len(messages) % 2 == 0 else "user"
        messages.append({"role": role, "content": text[at : at + each]})
        length += len(json.dumps(messages[-1], separators=(",", ":"))) + 1
        at = (at + each) % (len(text) - each)
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "Go on."})
    messages[1]["content"] += "." * max(0, size - len(encode(messages)))
    return messages
