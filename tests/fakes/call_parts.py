"""Small parts of a gateway machine's world: settings, counter-based tokens, agents, rows."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call import GatewaySettings
from gyre_hpc.machines.call.actions import Reply, Tokens
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.protocol.to_gateway import Row

FORMAT = create_chat_format("drill", "drill")
STOP = FORMAT.stop_ids[0]


def settings(**changed: Any) -> GatewaySettings:
    given: dict[str, Any] = {
        "register": Register("gateway-0", 1, "http://g", 1), "clock_offset_s": 1e9, "stop_ids": FORMAT.stop_ids, "max_context": 4000,
        "max_output_tokens": 20, "progress_tokens": 4, "abandon_s": 30.0, "call_deadline_s": 600.0,
    }  # fmt: skip
    return GatewaySettings(**(given | changed))


def draw(key: str, position: int, length: int = 12) -> int:
    """Token of a call at a position: a letter, then the end of turn."""
    seed = hashlib.sha256(f"{key}:{position}".encode()).digest()
    end = 1 + hashlib.sha256(key.encode()).digest()[0] % length
    return STOP if position == end else 97 + seed[0] % 26


@dataclass(eq=False)
class Client:
    """One agent: asks, keeps what it gets, asks again; the same request until it has an answer."""

    execution: str
    thread: str
    turns_left: int
    stream: bool
    messages: list[Message] = field(default_factory=lambda: [Message(role="user", content="go")])
    asks: dict[str, Any] = field(default_factory=dict)
    """Fields of Arrived that differ from a plain request."""
    conn: str = ""
    got: str = ""
    answers: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def wants(self) -> bool:
        return not self.conn and self.turns_left > 0

    def refuse(self, code: str) -> None:
        self.refused.append(code)
        self.conn = ""

    def take(self, reply: Reply) -> None:
        """The whole answer: kept as a turn, its calls carried out, and there is something more to ask."""
        content, calls = reply.answer.content, reply.answer.tool_calls
        assert content.startswith(self.got), "what was said is no beginning of the answer"
        self.answers.append(content)
        self.replies.append(reply)
        self.messages.append(Message(role="assistant", content=content, tool_calls=calls))
        self.messages += [Message(role="tool", content="ok", tool_call_id=call.id) for call in calls]
        if not calls:
            self.messages.append(Message(role="user", content="on"))
        self.turns_left -= 1
        self.conn = ""


def tokens_at(start: int, ids: list[int], version: Version) -> Tokens:
    return Tokens(
        start=start,
        ids=pack_ids(ids),
        logprobs=pack_floats([-1.0] * len(ids)),
        spans=(VersionSpan(version, start, start + len(ids)),),
        oldest_kv=version,
    )


def row(place: int, *, term: int = 1, step: int = 0, capacity: int = 4, purposes: tuple[str, ...] = ("train", "eval")) -> Row:
    return Row(f"cell-{place}", f"http://cell-{place}", term, Version(0, step), purposes, capacity)
