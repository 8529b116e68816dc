"""Which cell takes a call: expected seconds at every cell that may take it. Pure; O(cells) per call.

    wait(cell)    = prefill_s x tokens on their way there + service_s x calls beyond its capacity / capacity
    missing(cell) = tokens of the call's context that are not there
    cost(cell)    = wait + prefill_s x missing + 2 x output x slowdown_s x calls there

The last term is what decoding beside others costs; each call slows every other one, so what the others lose by it counts too,
hence the 2. A call without a home goes where the cost is least. One with a home stays there, unless

    wait(home) + prefill_s x missing(home) > wait(other) + MOVING x prefill_s x missing(other)

for the other cell of least cost: an overloaded home gives way once waiting there is expected to cost longer than computing
the prefix elsewhere. The prefix counts MOVING times because it is paid for more than once: calls behind it wait too, its copy
drives other prefixes out of the cache, and the next call of a conversation that has just moved finds the same load again.

Where the figures come from (all of it is the shard's own, nobody is asked):
  - capacity: the row; calls there, tokens on their way: what this shard sent and has not seen the end, the first token, of;
  - home: the cell that computed the newest of the call's context that is still there; without one, that of the newest
    opening of its group, with what the two prompts have in common;
  - prefill_s, slowdown_s, service_s, output: running averages of what calls took (`Pace`).
Before anything is measured a call goes home until that is full, else to the least load relative to capacity.

Invariants (each has a test): the choice is one of the places and does not depend on their order; a cell with more calls, or
more tokens on their way, is never preferred to one that is equal otherwise; of equal cells it is home.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

MEMORY = 0.98
"""Weight an observation keeps with each later one: the last fifty or so count."""
MOVING = 8.0
"""Smaller values cost hit rate, larger ones queues (docs/routing.md)."""
HALF = 8.0
"""Calls at which an engine's decoding is half saturated, until a slope is measured."""
_TRUST = 0.01
"""How far values must spread, as a share of their mean square, before a slope is believed over a line through (-half, 0)."""
FEWEST = 8
"""Observations before an average is used."""


class Place(Protocol):
    """A row of the routing table."""

    @property
    def cell(self) -> str: ...
    @property
    def capacity(self) -> int: ...


PlaceT = TypeVar("PlaceT", bound=Place)


@dataclass(slots=True)
class Line:
    """y = a + b x over the newest observations, a and b not negative."""

    half: float = 0.0
    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    num: int = 0

    def add(self, x: float, y: float) -> None:
        self.num += 1
        self.weight = MEMORY * self.weight + 1.0
        self.x, self.y = MEMORY * self.x + x, MEMORY * self.y + y
        self.xx, self.xy = MEMORY * self.xx + x * x, MEMORY * self.xy + x * y

    @property
    def mean(self) -> float:
        """Of y."""
        return self.y / self.weight if self.weight else 0.0

    @property
    def slope(self) -> float:
        """b. Where x hardly varied it is drawn towards y / (x + half): a line through (-half, 0)."""
        if self.num < FEWEST or self.x <= 0.0:
            return 0.0
        x, y = self.x / self.weight, self.y / self.weight
        guess, trust = y / (x + self.half), _TRUST * x * x
        spread, both = self.xx / self.weight - x * x, self.xy / self.weight - x * y
        return min(max((both + trust * guess) / (max(spread, 0.0) + trust), 0.0), y / x)


@dataclass(slots=True)
class Pace:
    """What calls took lately on the cells of this run."""

    _first: Line = field(default_factory=Line)
    _decode: Line = field(default_factory=lambda: Line(half=HALF))
    _whole: Line = field(default_factory=Line)

    def first_token(self, seconds: float, num_tokens: int) -> None:
        """It came `seconds` after a call was sent to a cell with a place free; `num_tokens`: computed for it, and for those before it."""
        self._first.add(num_tokens, seconds)

    def ended(self, seconds: float, decode_s: float, num_output: int, num_calls: int) -> None:
        """A call ended after `seconds`, `decode_s` of them after its first token, among `num_calls` there."""
        self._whole.add(num_output, seconds)
        if num_output > 1:
            self._decode.add(num_calls, decode_s / (num_output - 1))

    @property
    def is_known(self) -> bool:
        return min(self._first.num, self._whole.num) >= FEWEST

    @property
    def prefill_s(self) -> float:
        """Seconds per token computed before the first one is sampled."""
        return self._first.slope

    @property
    def slowdown_s(self) -> float:
        """Seconds by which each call at a cell lengthens every sampled token."""
        return self._decode.slope

    @property
    def service_s(self) -> float:
        """Seconds a call holds its place."""
        return self._whole.mean

    @property
    def output(self) -> float:
        """Tokens a call samples."""
        return self._whole.x / self._whole.weight if self._whole.weight else 0.0


def choose(
    places: Iterable[PlaceT],
    *,
    loads: Mapping[str, int],
    prefilling: Mapping[str, int],
    num_tokens: int,
    home: str,
    held: int,
    pace: Pace,
) -> PlaceT | None:
    """The place for a call of `num_tokens` context tokens, `held` of them at `home` (empty: nowhere). None without places.
    `loads`: calls there; `prefilling`: tokens to be computed there whose call has no token yet."""
    if not pace.is_known:
        return min(places, key=lambda place: _unmeasured(place, loads.get(place.cell, 0), home), default=None)
    prefill_s, service_s, beside_s = pace.prefill_s, pace.service_s, 2.0 * pace.output * pace.slowdown_s
    best: PlaceT | None = None
    at_home: PlaceT | None = None
    least: tuple[float, float, str] | None = None
    home_s = best_s = 0.0
    for place in places:
        cell, capacity, load = place.cell, max(place.capacity, 1), loads.get(place.cell, 0)
        wait_s = prefill_s * prefilling.get(cell, 0) + service_s * max(load + 1 - capacity, 0) / capacity
        if cell == home:
            at_home, home_s = place, wait_s + prefill_s * (num_tokens - held)
            continue
        rank = (wait_s + beside_s * load, load / capacity, cell)
        if least is None or rank < least:
            best, least, best_s = place, rank, wait_s + MOVING * prefill_s * num_tokens
    return at_home if at_home is not None and (best is None or home_s <= best_s) else best


def _unmeasured(place: Place, load: int, home: str) -> tuple[bool, float, str]:
    return not (place.cell == home and load < place.capacity), load / max(place.capacity, 1), place.cell
