"""When an answer ends: a stop token, a stop string, or the length asked for. The same for every engine that samples.

Stop strings are looked for in the text of the whole answer. A continuation (position n > 0) has the first n output tokens
at the end of its prompt, so a string that begins before the switch of cells and ends after it is found.

Invariants:
  - an answer ends with the first token after which its decoded text contains a stop string, however its tokens were split
    into attempts;
  - a token costs the decoding of a bounded tail, whatever the length of the answer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

from gyre_hpc.engines.answer import reached_length, stopped
from gyre_hpc.engines.request import Request

Decode = Callable[[Sequence[int]], str]
"""Ids -> text, by a tokenizer whose tokens are pieces of UTF-8 (byte-level): an id adds at least one byte or no text at
all. Takes every id the model can sample; bytes that are no text become U+FFFD."""

_SLACK = 4
"""More tokens of tail than a stop string can have: at the beginning of a text, tokens may decode to something else."""


class StopWatch:
    """Looks for stop strings in the text of ids that come one by one."""

    def __init__(self, stop: Sequence[str], decode: Decode, newest_first: Iterable[int]) -> None:
        """newest_first: output so far, backwards; only as much is read as a stop string can need."""
        self._stop, self._decode = tuple(stop), decode
        size = max(len(text.encode()) for text in stop) + _SLACK
        self._tail: deque[int] = deque(maxlen=size)
        self._tail.extendleft(islice(filter(self._has_text, newest_first), size))
        self.matched = self._look()
        """The stop string that is in the text already."""

    def feed(self, token: int) -> str | None:
        """The stop string that `token` completes."""
        # Ids without text would push those with text out of the tail.
        if not self._has_text(token):
            return None
        self._tail.append(token)
        self.matched = self._look()
        return self.matched

    def _has_text(self, token: int) -> bool:
        # Twice: some tokenizers drop the first space of a text.
        return bool(self._decode([token, token]))

    def _look(self) -> str | None:
        """Of several, the one that begins first; of those, the first asked for."""
        text = self._decode(list(self._tail))
        places = [(place, index) for index, stop in enumerate(self._stop) if (place := text.find(stop)) >= 0]
        return self._stop[min(places)[1]] if places else None


class Stopping:
    """Judges the tokens of one request, in order."""

    def __init__(self, request: Request, decode: Decode | None, *, longest: int | None = None, output: Sequence[int] = ()) -> None:
        """longest: there are no more tokens than these (a script's), counted with `output`, the tokens this request has already."""
        self._stop_ids = request.stop_ids
        self._longest = request.max_new_tokens if longest is None else min(longest, request.max_new_tokens)
        self._watch: StopWatch | None = None
        if request.stop:
            assert decode is not None, "a request with stop strings is refused at the door of an engine without a tokenizer"
            earlier = islice(reversed(request.input_ids), request.position)
            self._watch = StopWatch(request.stop, decode, chain(reversed(output), earlier))

    def at_once(self) -> dict[str, Any] | None:
        """Finish reason of a request that has nothing left to answer."""
        if self._watch is not None and self._watch.matched is not None:
            return stopped(self._watch.matched)
        return reached_length(0) if self._longest == 0 else None

    def after(self, token: int, num_output: int) -> dict[str, Any] | None:
        """Finish reason if `token`, with which this request has num_output tokens, is the last one."""
        if token in self._stop_ids:
            return stopped(token)
        matched = self._watch.feed(token) if self._watch is not None else None
        if matched is not None:
            return stopped(matched)
        return reached_length(num_output) if num_output >= self._longest else None
