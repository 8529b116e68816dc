"""What a chat format does: messages -> token ids, sampled ids -> a parsed answer.

Invariants (each has a test for every format):
  - render(m) followed by a recorded answer followed by render_suffix(later messages) is the prompt of the next call:
    recorded ids are never rendered again.
  - for answers the model ended itself, in the format's own spelling, render(all messages) has the same *text* as that concatenation;
  - where this cannot be promised, render_suffix raises ValueError and the caller renders a new branch (thinking that the template
    would drop is the one exception, docs/decisions/0007);
  - reader(...).feed() of any pieces gives what parse(partial=True) of their concatenation gives; finish() what parse gives.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call as text. `id` is minted by the gateway; empty straight after parsing."""

    name: str
    arguments: str
    """JSON text exactly as the model wrote it."""
    id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn, whatever protocol it came from."""

    role: str
    """system, user, assistant or tool."""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    """role tool: the call it answers."""
    name: str = ""
    """role tool: the tool that was called, where the caller knows it; some templates show it."""
    reasoning: str = ""
    """role assistant: what it thought before it spoke."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Malformed:
    """A tool call that could not be parsed."""

    raw: str
    """Its text, marks included, exactly as the model wrote it."""
    start: int
    end: int
    """Output tokens [start, end) that hold it."""
    reason: str
    """One line the agent can act on."""
    name: str = ""
    """The tool it names, as far as that can be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the model's output ids say."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    """Kept, counted, and answered to the agent as calls that fail; not part of `content`."""
    reasoning: str = ""
    stopped_by: str = ""
    """The stop sequence at which the text was cut; empty when none was met."""


class Tokenizer(ABC):
    """Text <-> ids. decode(encode(t)) == t; encode(decode(ids)) need not be ids."""

    vocab_size: int
    special: dict[str, int] = field(default_factory=dict)

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Special tokens in `text` become their single id."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens appear as their text; bytes that are no UTF-8 become U+FFFD; ids without a token say nothing."""

    def bytes_of(self, id: int) -> bytes:
        """Bytes of one token. A character may be spread over several; kinds that know their tokens' bytes tell them exactly."""
        return self.decode([id]).encode()


class Reader(ABC):
    """Reads one answer while it is sampled."""

    @abstractmethod
    def feed(self, ids: Sequence[int]) -> Answer:
        """The answer after these further output ids, as far as later ones cannot take it back."""

    @abstractmethod
    def finish(self) -> Answer:
        """The whole answer. Nothing is fed afterwards."""


class ChatFormat(ABC):
    """A tokenizer, a template and a parser that belong together."""

    name: str
    tokenizer: Tokenizer
    stop_ids: tuple[int, ...]
    """Sampling one of these ends the answer; the id is part of the output."""
    notices: tuple[str, ...] = ()
    """What people should know of this format: turns it shows otherwise than asked, prompts it cannot extend. One line each."""

    @abstractmethod
    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The whole prompt, generation prompt included. `tools` are OpenAI function tools.

        Raises ValueError for messages that the template refuses.
        """

    @abstractmethod
    def render_suffix(self, messages: Sequence[Message], *, ended: bool, thought: bool = True) -> list[int]:
        """What follows a recorded answer: its closing (when it was cut, `ended=False`, the end-of-turn marker too),
        the later messages, the generation prompt.

        `thought`: the recorded context may hold thinking. Raises ValueError when this would not be what the template makes
        of the whole conversation.
        """

    @abstractmethod
    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        """Parse output ids (with or without the stop id at the end). Never raises on what a model wrote.

        `stop`: the text is cut before the first of these. `partial`: more tokens may follow, so only what they cannot take
        back is told: no half mark, no unfinished tool call, nothing malformed. `tools`: those of the prompt; formats whose
        calls carry no types take the arguments' types from them.
        """

    def reader(self, *, stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()) -> Reader:
        """For an answer that is still being sampled. This one parses all of it each time; formats for long answers do better."""
        return _ParsesAgain(self, stop, tools)


class _ParsesAgain(Reader):
    def __init__(self, chat: ChatFormat, stop: Sequence[str], tools: Sequence[dict[str, Any]]) -> None:
        self._chat, self._stop, self._tools = chat, stop, tools
        self._ids: list[int] = []

    def feed(self, ids: Sequence[int]) -> Answer:
        self._ids += ids
        return self._chat.parse(self._ids, stop=self._stop, tools=self._tools, partial=True)

    def finish(self) -> Answer:
        return self._chat.parse(self._ids, stop=self._stop, tools=self._tools)
