"""Output ids -> answer, while they arrive: bytes to text, text to thinking, words and calls."""

from collections.abc import Sequence
from typing import Any

from gyre_hpc.chat.base import Answer, Malformed, Reader
from gyre_hpc.chat.parsers.base import CallGrammar
from gyre_hpc.chat.parsers.scanner import BrokenCall, Scanner
from gyre_hpc.chat.token_text import TextStream


class StreamReader(Reader):
    """One answer."""

    def __init__(
        self,
        stream: TextStream,
        grammar: CallGrammar,
        *,
        stop_ids: Sequence[int],
        thinks: bool,
        thinking_begun: bool,
        stop: Sequence[str],
        tools: Sequence[dict[str, Any]],
    ) -> None:
        self._stream, self._stop_ids = stream, frozenset(stop_ids)
        self._scanner = Scanner(grammar, thinks=thinks, thinking_begun=thinking_begun, stop=stop, tools=tools)
        self._last: list[int] = []
        """A stop id that ends what came so far; it is text only if more follows."""

    def feed(self, ids: Sequence[int]) -> Answer:
        fresh = [*self._last, *ids]
        self._last = [fresh.pop()] if fresh and fresh[-1] in self._stop_ids else []
        self._scanner.feed(self._stream.push(fresh))
        return self._answer(malformed=())

    def finish(self) -> Answer:
        self._scanner.feed(self._stream.end())
        self._scanner.finish()
        return self._answer(malformed=tuple(map(self._malformed, self._scanner.broken)))

    def _answer(self, malformed: tuple[Malformed, ...]) -> Answer:
        said = self._scanner
        return Answer(
            content=said.content, tool_calls=tuple(said.calls), malformed=malformed, reasoning=said.reasoning, stopped_by=said.stopped_by
        )

    def _malformed(self, broken: BrokenCall) -> Malformed:
        start, end = self._stream.tokens(broken.start, broken.start + len(broken.raw))
        verdict = broken.verdict
        return Malformed(raw=broken.raw, start=start, end=end, reason=verdict.reason, name=verdict.name)
