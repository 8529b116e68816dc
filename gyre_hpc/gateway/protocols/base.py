"""What a harness protocol is to the gateway: bytes -> one request, answers -> bytes. Pure; no socket, no decision."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import Answer, Message


class RequestError(Exception):
    """The request is wrong in itself. `field` names what is wrong, in the protocol's words."""

    def __init__(self, text: str, *, field: str = "", status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.text, self.field, self.status, self.code = text, field, status, code


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One request for one answer, whatever protocol it came in."""

    body: Mapping[str, Any]
    """As parsed, for the harness's role rules."""
    identity: bytes
    """Canonical JSON of everything but the messages and volatile fields."""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    requested: dict[str, float | int | str]
    """Sampling the harness asked for."""
    max_new_tokens: int
    """0: not limited by the harness."""
    stream: bool
    model: str
    with_usage: bool
    """streaming: tell the token counts at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What every piece of one response repeats."""

    id: str
    created: int
    """Unix seconds."""
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    completion_tokens: int


class Protocol(ABC):
    """One harness protocol."""

    @abstractmethod
    def parse(self, body: bytes) -> ChatRequest:
        """Raises RequestError naming the field."""

    @abstractmethod
    def whole(self, head: Head, answer: Answer, finish: str, usage: Usage) -> bytes:
        """Body of a response that is not streamed."""

    @abstractmethod
    def opening(self, head: Head) -> bytes:
        """First events of a stream."""

    @abstractmethod
    def text(self, head: Head, text: str) -> bytes:
        """Events for a piece of text; for an empty one a real event that changes nothing (keep-alive)."""

    @abstractmethod
    def closing(self, head: Head, answer: Answer, finish: str, usage: Usage | None) -> bytes:
        """Last events: the rest of the text, tool calls, finish reason, counts if asked for."""

    @abstractmethod
    def error(self, error: RequestError) -> bytes:
        """Body of an error response."""

    @abstractmethod
    def error_event(self, error: RequestError) -> bytes:
        """An error inside a stream, and its end."""
