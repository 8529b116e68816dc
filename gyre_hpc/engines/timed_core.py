"""A model of an engine's speed, in place of its computing. No torch, no clock, no loop: `now` is an argument.

While n calls decode, the engine makes `tokens_per_s * n / (n + half)` tokens per second, shared equally: every call has
the speed tokens_per_s / (n + half). The integral of that speed over time is the *pace*: a call that joined at pace p has
made floor(pace - p) tokens. A call first waits for its prefill (tokens not cached / prefill_tokens_per_s), beside others.
Prefixes are cached by the same keys as in the embedded engine (prefix_ledger.py), so cached tokens are counted alike.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.engines.answer import Piece, Span, aborted
from gyre_hpc.engines.counter_random import uniform
from gyre_hpc.engines.ids_digest import IdsDigest
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.engines.prefix_ledger import PrefixLedger
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.stopping import Decode, Stopping
from gyre_hpc.engines.timed_speed import Speed
from gyre_hpc.protocol.identity import Version

TokenSource = Callable[[tuple[int, ...], bytes, int], int]
"""(prompt ids, key, position) -> token id. Must follow from key and position alone, so that continuations agree."""

_LOGPROB = -1.0
_ROUNDING = 1e-6
"""Of a token: a timer that fires at the computed instant must find its tokens made."""


def pseudo_random_source(vocab_size: int) -> TokenSource:
    """Uniform over the vocabulary, by counter."""
    return lambda prompt, key, position: int(uniform(key, position) * vocab_size)


@dataclass(kw_only=True, slots=True)
class TimedCall:
    number: int
    request: Request
    output: list[int] = field(default_factory=list)
    ahead: list[int] = field(default_factory=list)
    """Tokens of the next chunk, looked up before they are made; ends where the answer ends."""
    finish: dict[str, Any] | None = None
    """Finish reason once all of `ahead` is made."""
    joined_pace: float = 0.0
    """Pace at which ahead[0] began."""
    ready_at: float | None = None
    """End of the prefill; None: waiting or decoding."""
    is_decoding: bool = False
    pages: list[int] = field(default_factory=list)
    num_prefilled: int = 0
    """Tokens that the last prefill computed or found."""
    num_cached: int = 0
    num_retractions: int = 0


class TimedCore:
    """Calls of one engine. Every method first lets time pass up to `now`; pieces collect in `out`."""

    def __init__(
        self,
        speed: Speed,
        *,
        source: TokenSource,
        kv_tokens: int,
        page_size: int,
        max_batch: int,
        keep_kv: bool,
        chunk: int,
        max_context: int,
        decode: Decode | None = None,
    ) -> None:
        self._speed, self._source, self._chunk, self._decode = speed, source, chunk, decode
        self._max_batch, self._keep_kv = max_batch, keep_kv
        self._prefixes = PrefixLedger(kv_tokens, page_size, keep_kv, max_context)
        self._calls: dict[int, TimedCall] = {}
        self._now, self._pace = 0.0, 0.0
        self.version = Version()
        self.is_paused = False
        self.out: list[Piece] = []
        self.counters = {"sampled": 0, "prefilled": 0, "cached": 0, "decode_steps": 0}

    @property
    def num_live(self) -> int:
        return len(self._calls)

    @property
    def num_admitted(self) -> int:
        return sum(1 for call in self._calls.values() if call.is_decoding or call.ready_at is not None)

    @property
    def num_used_tokens(self) -> int:
        return self._prefixes.num_used_tokens

    @property
    def num_held_back(self) -> int:
        """Tokens made and not put out yet."""
        return sum(self._num_made(call) for call in self._calls.values())

    def add(self, now: float, call: TimedCall) -> None:
        self.advance(now)
        self._calls[call.number] = call
        self._admit()

    def abort(self, now: float, number: int, reason: str, moved_to: str = "") -> None:
        """End a call with the tokens made so far; nothing when it is already over."""
        self.advance(now)
        call = self._calls.get(number)
        if call is not None:
            self._show(call, self._num_made(call), aborted(reason, moved_to))
            self._admit()

    def update(self, now: float, version: Version) -> None:
        """Go over to another version: tokens made so far belong to the old one. Recompute: all prefill again."""
        self.advance(now)
        if version == self.version:
            return
        for call in self._decoding():
            self._show(call, self._num_made(call), None)
        if not self._keep_kv:
            self.retract_all(now)
            self._prefixes.forget()
        self.version = version
        self._admit()

    def retract_all(self, now: float) -> None:
        """Admitted calls wait for admission and a new prefill."""
        self.advance(now)
        for call in self._calls.values():
            if call.is_decoding or call.ready_at is not None:
                self._show(call, self._num_made(call), None)
                self._release(call)
                call.num_retractions += 1

    @property
    def pages(self) -> KvPages:
        """Pages for other engines; `publish_all` before looking at conversations, `admit` after giving room back."""
        return self._prefixes.pages

    def publish_all(self, now: float) -> None:
        """Full pages of calls that decode can be found, as far as their tokens were put out."""
        self.advance(now)
        for call in self._decoding():
            self._publish(call)

    def admit(self, now: float) -> None:
        self.advance(now)
        self._admit()

    def flush_cache(self) -> bool:
        if self._calls:
            return False
        self._prefixes.forget()
        return True

    def set_paused(self, now: float, is_paused: bool) -> None:
        self.advance(now)
        self.is_paused = is_paused
        if not is_paused:
            self._admit()

    def next_due(self) -> float | None:
        """When `advance` has something to do next; None: not before something else happens."""
        if self.is_paused or not self._calls:
            return None
        dues = [call.ready_at for call in self._calls.values() if call.ready_at is not None]
        decoding = self._decoding()
        if decoding:
            least = min(call.joined_pace + len(call.ahead) for call in decoding) - self._pace
            dues.append(self._now + max(least, 0.0) / self._speed.per_call(len(decoding)))
        return min(dues, default=None)

    def advance(self, now: float) -> None:
        """Let time pass: prefills end, tokens are made, calls end."""
        if self.is_paused:
            self._shift_prefills(now - self._now)
            self._now = now
            return
        while (due := self.next_due()) is not None and due <= now:
            self._pass_time(due)
            self._settle()
        self._pass_time(now)

    def _pass_time(self, now: float) -> None:
        decoding = self._decoding()
        if decoding:
            self._pace += max(now - self._now, 0.0) * self._speed.per_call(len(decoding))
        self._now = now

    def _shift_prefills(self, seconds: float) -> None:
        """A paused engine does not prefill either."""
        for call in self._calls.values():
            if call.ready_at is not None:
                call.ready_at += seconds

    def _settle(self) -> None:
        """Do what is due at self._now."""
        for call in list(self._calls.values()):
            if call.ready_at is not None and call.ready_at <= self._now:
                call.ready_at, call.is_decoding = None, True
                call.num_prefilled = len(call.request.input_ids) + len(call.output)
                self._publish(call)
                self._look_ahead(call)
            elif call.is_decoding and self._num_made(call) == len(call.ahead):
                self._show(call, len(call.ahead), call.finish)
        self._admit()

    def _num_made(self, call: TimedCall) -> int:
        """Tokens of `ahead` made by now."""
        if not call.is_decoding:
            return 0
        return min(len(call.ahead), max(0, math.floor(self._pace - call.joined_pace + _ROUNDING)))

    def _look_ahead(self, call: TimedCall) -> None:
        request, done = call.request, len(call.output)
        stopping = Stopping(request, self._decode, output=call.output)
        call.ahead, call.joined_pace, call.finish = [], self._pace, stopping.at_once()
        for index in range(done, done + self._chunk):
            if call.finish is not None:
                break
            call.ahead.append(self._source(request.input_ids, request.key, request.position + index))
            call.finish = stopping.after(call.ahead[-1], index + 1)

    def _show(self, call: TimedCall, num_made: int, finish: dict[str, Any] | None) -> None:
        """Put out the next `num_made` tokens; go on with what follows, or end."""
        start, ids = len(call.output), call.ahead[:num_made]
        call.output += ids
        self.counters["sampled"] += num_made
        self.counters["decode_steps"] += num_made
        spans: tuple[Span, ...] = ((str(self.version), start, start + num_made),) if ids else ()
        self.out.append(
            Piece(
                number=call.number,
                start=start,
                ids=ids,
                logprobs=[_LOGPROB] * num_made,
                spans=spans,
                oldest_kv=str(self.version),
                cached=call.num_cached,
                num_retractions=call.num_retractions,
                finish=finish,
                digest=IdsDigest([*call.request.input_ids, *call.output]).hexdigest() if finish is not None else "",
            )
        )
        if finish is not None:
            self._release(call)
            del self._calls[call.number]
        elif call.is_decoding:
            self._look_ahead(call)

    def _decoding(self) -> list[TimedCall]:
        return [call for call in self._calls.values() if call.is_decoding]

    def _admit(self) -> None:
        """Begin the prefill of waiting calls in order, while batch and KV have room for all they may ask."""
        if self.is_paused:
            return
        room = self._max_batch - self.num_admitted
        for call in self._calls.values():
            if call.is_decoding or call.ready_at is not None:
                continue
            if room <= 0 or not self._hold_pages(call):
                break
            room -= 1

    def _hold_pages(self, call: TimedCall) -> bool:
        ids = [*call.request.input_ids, *call.output]
        held = self._prefixes.hold(ids, len(call.request.input_ids) + call.request.max_new_tokens, self.version, call.request.call)
        if held is None:
            return False
        call.pages, num_cached = held
        self._begin_prefill(call, len(ids), num_cached)
        return True

    def _begin_prefill(self, call: TimedCall, num_tokens: int, num_cached: int) -> None:
        call.ready_at = self._now + self._speed.prefill_s(num_tokens - num_cached)
        self.counters["cached"] += num_cached
        self.counters["prefilled"] += num_tokens - num_cached
        if not call.num_retractions:
            call.num_cached = num_cached

    def _release(self, call: TimedCall) -> None:
        """Give back what the call holds; what it computed stays cached."""
        if call.is_decoding:
            self._publish(call)
        self._prefixes.release(call.pages, call.request.call)
        call.pages, call.ahead, call.ready_at, call.is_decoding = [], [], None, False

    def _publish(self, call: TimedCall) -> None:
        ids = [*call.request.input_ids, *call.output]
        # The last token was sampled, not computed, unless a prefill did.
        computed = ids[: max(call.num_prefilled, len(ids) - 1)]
        self._prefixes.publish(call.pages, computed, self.version, call.request.call)
