"""One engine as the study needs it: places, prefill one call after another, decode shared by all, a prefix cache that forgets
what was used longest ago. Time passes on the simulation kernel.

Decode is that of the timed engine: n calls make tokens_per_s * n / (n + half) tokens a second, shared equally. What is
cached is looked up when a call's prefill begins, in whole pages, the last token never. A context's segments are cached one by
one, and evicted the end of a chain first. A weight update is not part of it.
"""

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.routing.workload import Call, Segment
from gyre_hpc.simulation.kernel import Kernel


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """Speeds and sizes of every cell."""

    places: int
    """Calls at once (max_batch, and the capacity that rows tell)."""
    prefill_tokens_s: float
    decode_tokens_s: float
    half: float
    kv_tokens: int
    page: int = 16
    move_tokens_s: float = 0.0
    """Speed at which KV goes to other cells; 0: it does not."""
    move_budget_s: float = 0.0


@dataclass(slots=True, eq=False)
class Ask:
    """A call on its way: what it needs, what happened to it."""

    execution: int
    place: int
    call: Call
    since: float
    group: str
    done: int = 0
    """Output tokens so far."""
    sent: float = 0.0
    """To the cell it is at."""
    began: float | None = None
    """When its prefill first began anywhere."""
    first: float | None = None
    """When its first token came."""
    here: float = 0.0
    """When the first token of this attempt came."""
    cached: int = 0
    """Of this attempt."""
    goal: float = 0.0
    """Pace at which it has all its tokens."""

    @property
    def num_tokens(self) -> int:
        return self.call.num_prompt + self.done

    @property
    def chain(self) -> tuple[Segment, ...]:
        """Its context as cached segments, its own text and tokens so far last."""
        return (*self.call.prefix, (self.call.own, self.call.suffix + self.done))


@dataclass(slots=True, eq=False)
class Cell:
    """`on_first`, `on_end` are told of calls; both come at the instant they happen."""

    name: str
    engine: Engine
    kernel: Kernel
    on_first: Callable[["Cell", Ask], None]
    on_end: Callable[["Cell", Ask], None]
    waiting: deque[Ask] = field(default_factory=deque)
    prefill: deque[Ask] = field(default_factory=deque)
    """Have a place; the first one is being computed."""
    decoding: list[tuple[float, int, Ask]] = field(default_factory=list)
    cache: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Segment -> tokens of it that are here, the one used longest ago first."""
    num_cached: int = 0
    is_open: bool = True
    _pace: float = 0.0
    _seen: float = 0.0
    _round: int = 0
    _ordinal: int = 0
    _life: int = 0

    def take(self, ask: Ask) -> None:
        ask.sent = self.kernel.now
        self.waiting.append(ask)
        self._admit()

    def leave(self) -> list[Ask]:
        """Stop; its calls with their tokens so far, in order of their coming. The cache stays until `forget`."""
        self._pass_time()
        for goal, _, ask in self.decoding:
            ask.done = max(ask.done, ask.call.output - max(1, math.ceil(goal - self._pace)))
            self.keep(ask.chain)
        out = [*(ask for _, _, ask in sorted(self.decoding)), *self.prefill, *self.waiting]
        self.decoding, self.is_open = [], False
        self.prefill.clear()
        self.waiting.clear()
        self._round += 1
        self._life += 1
        return out

    def come_back(self) -> None:
        self._pass_time()
        self.is_open = True

    def forget(self) -> None:
        self.cache.clear()
        self.num_cached = 0

    def match(self, chain: tuple[Segment, ...]) -> int:
        """Tokens of the chain that are here, from its beginning on."""
        num = 0
        for name, size in chain:
            here = min(self.cache.get(name, 0), size)
            num += here
            if here < size:
                break
        return num

    def keep(self, chain: tuple[Segment, ...]) -> None:
        """The chain's KV is here now; what was used longest ago goes, if there is no room."""
        for name, size in reversed(chain):
            before = self.cache.pop(name, 0)
            self.cache[name] = max(before, size)
            self.num_cached += self.cache[name] - before
        while self.num_cached > self.engine.kv_tokens and self.cache:
            _, size = self.cache.popitem(last=False)
            self.num_cached -= size

    @property
    def num_calls(self) -> int:
        return len(self.waiting) + len(self.prefill) + len(self.decoding)

    def _admit(self) -> None:
        while self.waiting and len(self.prefill) + len(self.decoding) < self.engine.places:
            self.prefill.append(self.waiting.popleft())
            if len(self.prefill) == 1:
                self._begin_prefill()

    def _begin_prefill(self) -> None:
        ask = self.prefill[0]
        if ask.began is None:
            ask.began = self.kernel.now
        ask.cached = min(self.match(ask.chain), ask.num_tokens - 1) // self.engine.page * self.engine.page
        self._at((ask.num_tokens - ask.cached) / self.engine.prefill_tokens_s, self._end_prefill)

    def _end_prefill(self) -> None:
        ask = self.prefill.popleft()
        self._pass_time()
        self.keep(ask.chain)
        ask.here = self.kernel.now
        ask.goal = self._pace + ask.call.output - ask.done
        self._ordinal += 1
        heapq.heappush(self.decoding, (ask.goal, self._ordinal, ask))
        if ask.first is None:
            ask.first = self.kernel.now
        self.on_first(self, ask)
        if self.prefill:
            self._begin_prefill()
        self._wake()

    def _pass_time(self) -> None:
        if self.decoding:
            self._pace += (self.kernel.now - self._seen) * self._speed()
        self._seen = self.kernel.now

    def _speed(self) -> float:
        """Tokens per second of one call."""
        return self.engine.decode_tokens_s / (len(self.decoding) + self.engine.half)

    def _wake(self) -> None:
        """When the next call has all its tokens, unless another joins first."""
        self._round += 1
        if self.decoding:
            current = self._round
            left = max(0.0, self.decoding[0][0] - self._pace) / self._speed()
            self.kernel.at(left, lambda: self._end(current))

    def _end(self, current: int) -> None:
        if current != self._round:
            return
        self._pass_time()
        _, _, ask = heapq.heappop(self.decoding)
        ask.done = ask.call.output
        self.keep(ask.chain)
        self._admit()
        self._wake()
        self.on_end(self, ask)

    def _at(self, after_s: float, call: Callable[[], None]) -> None:
        """Unless the cell leaves before."""
        born = self._life
        self.kernel.at(after_s, lambda: call() if self._life == born else None)
