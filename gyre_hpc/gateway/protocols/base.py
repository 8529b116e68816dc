"""What a harness protocol is to the gateway: bytes -> one request, answers -> bytes. Pure; no socket, no decision."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.chat.base import Answer, Message


class RequestError(Exception):
    """The request is wrong in itself. `field` names what is wrong, in the protocol's words."""

    def __init__(
        self, text: str, *, field: str = "", status: int = 400, code: str = "invalid_request", facts: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(text)
        self.text, self.field, self.status, self.code = text, field, status, code
        self.facts = dict(facts or {})
        """context_length_exceeded: `tokens` and `limit`; a protocol has words of its own for it, on which harnesses compact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """One request for one answer, whatever protocol it came in."""

    body: Mapping[str, Any]
    """As parsed, for the harness's role rules and for what a response repeats of its request."""
    identity: bytes
    """Canonical JSON of everything but the messages and volatile fields."""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    """OpenAI function tools, whatever the protocol's own notation is."""
    requested: dict[str, float | int | str]
    """Sampling the harness asked for."""
    max_new_tokens: int
    """0: not limited by the harness."""
    stream: bool
    model: str
    with_usage: bool = True
    """streaming: tell the token counts at the end."""
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    store: bool = False
    """Keep the answer: it can be fetched again, and later requests can go on from it."""
    previous: str = ""
    """Call whose conversation the messages continue."""
    instructed: bool = False
    """The first message is an instruction for this answer alone: what continues it does not take it over."""
    echo: tuple[bytes, ...] = ()
    """What the protocol wants back with a stored answer (Finished.echo); what requests have in common in pieces of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What every piece of one response repeats."""

    call: str
    """`<execution>/<ordinal>`; protocols make their ids of it."""
    created: int
    """Unix seconds."""
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLogprob:
    """One output token as a client sees it."""

    text: str
    raw: bytes
    """Its bytes; a character can be spread over several tokens."""
    logprob: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """An answer that is complete."""

    answer: Answer
    """The whole of it, with minted tool-call ids."""
    finish: str
    """stop, length or tool_calls; `answer.stopped_by` names a stop sequence that was met."""
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = field(default=())
    """Of all output tokens, if asked for."""
    echo: tuple[bytes, ...] = ()
    """ChatRequest.echo of the request this answers; of a stored answer, that of its own request."""
    previous: str = ""
    """Call whose conversation this one continues."""
    created: int = 0
    """Unix seconds when the call began; a retry or a retrieval finds an older one than its own Head's."""


class Stream(ABC):
    """Events of one streamed response, in order. It remembers what it has said: `closing` adds what is missing.

    Order of calls: opening once, then reasoning, text and keep_alive as they come, then closing or error once.
    """

    @abstractmethod
    def opening(self) -> bytes:
        """First events."""

    @abstractmethod
    def keep_alive(self) -> bytes:
        """A real event of the protocol that changes nothing; clients do not count comments (notes of each protocol)."""

    @abstractmethod
    def reasoning(self, text: str) -> bytes:
        """A piece of reasoning; never after text."""

    @abstractmethod
    def text(self, text: str) -> bytes:
        """A piece of text."""

    @abstractmethod
    def closing(self, finished: Finished) -> bytes:
        """The rest of reasoning and text, tool calls, finish reason, counts if asked for, and the end."""

    @abstractmethod
    def error(self, error: RequestError) -> bytes:
        """An error inside the stream, and its end."""


class Protocol(ABC):
    """One harness protocol."""

    name: str
    """chat_completions, responses or messages."""

    @abstractmethod
    def parse(self, body: bytes) -> ChatRequest:
        """Raises RequestError naming the field."""

    def parse_for(self, execution: str, body: bytes) -> ChatRequest:
        """`parse`, for protocols whose requests name earlier answers, which must be this execution's."""
        return self.parse(body)

    def forget(self, execution: str) -> None:  # noqa: B027  (most remember nothing)
        """It takes no more calls: what is remembered of its requests goes."""

    @abstractmethod
    def whole(self, head: Head, asked: ChatRequest, finished: Finished) -> bytes:
        """Body of a response that is not streamed."""

    @abstractmethod
    def stream(self, head: Head, asked: ChatRequest) -> Stream:
        """A streamed response that has not begun."""

    @abstractmethod
    def error(self, error: RequestError) -> bytes:
        """Body of an error response."""
