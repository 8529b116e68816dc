"""Three routers. Each is told when a call is sent, has its first token and is over, and when cells leave; nothing else.

Ours runs the code of the gateway (scheduler/routing.py) on what a shard knows. `CacheAware` is the plain rule of sglang-router and
its successors: one tree of everything sent, by cell; the longest match wins if it is at least `cache_threshold` of the
request, else the shortest queue; while queues differ by more than both balance thresholds the shortest queue always wins.
Its tree is told nothing of evictions, as there; a cell that leaves is removed and comes back empty, as there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.routing.cell import Ask, Cell
from gyre_hpc.scheduler.routing import Pace, choose


@dataclass(frozen=True, slots=True)
class Row:
    cell: str
    capacity: int


class Router:
    """Loads are counted here for all of them."""

    name = ""

    def __init__(self) -> None:
        self.loads: Counter[str] = Counter()

    def route(self, ask: Ask, cells: Sequence[Cell]) -> Cell:
        """One of `cells`, of which there is at least one."""
        raise NotImplementedError

    def sent(self, ask: Ask, cell: Cell) -> None:
        self.loads[cell.name] += 1

    def first_token(self, ask: Ask, cell: Cell) -> None:
        pass

    def over(self, ask: Ask, cell: Cell, ended: bool) -> None:
        """It ended there, or (not `ended`) goes on elsewhere."""
        self.loads[cell.name] -= 1

    def left(self, cell: Cell) -> None:
        pass

    def moved(self, owner: str, cell: Cell) -> None:
        """The KV of the conversation whose newest segment is `owner` is at `cell` now."""


class RoundRobin(Router):
    name = "round_robin"

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def route(self, ask: Ask, cells: Sequence[Cell]) -> Cell:
        self._next += 1
        return cells[self._next % len(cells)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """Defaults of the router's newer versions; older ones have 0.5, 32, 1.0001."""

    cache: float = 0.3
    balance_abs: int = 64
    balance_rel: float = 1.5


class CacheAware(Router):
    name = "cache_aware"

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        super().__init__()
        self._limits = thresholds or Thresholds()
        self._tree: dict[str, dict[str, int]] = {}
        """Segment -> cell -> tokens of it sent there."""

    def route(self, ask: Ask, cells: Sequence[Cell]) -> Cell:
        shortest = min(cells, key=lambda cell: (self.loads[cell.name], cell.name))
        longest = max(self.loads[cell.name] for cell in cells)
        least = self.loads[shortest.name]
        if longest - least > self._limits.balance_abs and longest > self._limits.balance_rel * least:
            return shortest
        best = max(cells, key=lambda cell: (self._match(ask, cell), -self.loads[cell.name]))
        return best if self._match(ask, best) > self._limits.cache * ask.num_tokens else shortest

    def sent(self, ask: Ask, cell: Cell) -> None:
        super().sent(ask, cell)
        for name, size in ask.chain:
            known = self._tree.setdefault(name, {})
            known[cell.name] = max(known.get(cell.name, 0), size)

    def left(self, cell: Cell) -> None:
        for known in self._tree.values():
            known.pop(cell.name, None)

    def _match(self, ask: Ask, cell: Cell) -> int:
        num = 0
        for name, size in ask.chain:
            here = min(self._tree.get(name, {}).get(cell.name, 0), size)
            num += here
            if here < size:
                break
        return num


@dataclass(slots=True)
class _Sent:
    ahead: int
    """Tokens to be computed before its first one, by our books."""
    misses: int
    is_free: bool
    """There was a place for it."""


class Ours(Router):
    name = "ours"

    def __init__(self) -> None:
        super().__init__()
        self._prefilling: Counter[str] = Counter()
        self._sent: dict[tuple[int, int], _Sent] = {}
        self._homes: dict[str, tuple[str, int]] = {}
        """Segment -> (cell that computed it last, how often that had left before)."""
        self._times_left: Counter[str] = Counter()
        self.pace = Pace()

    def route(self, ask: Ask, cells: Sequence[Cell]) -> Cell:
        home, held = self._home(ask)
        row = choose(
            [Row(cell.name, cell.engine.places) for cell in cells],
            loads=self.loads,
            prefilling=self._prefilling,
            num_tokens=ask.num_tokens,
            home=home,
            held=held,
            pace=self.pace,
        )
        assert row is not None
        return next(cell for cell in cells if cell.name == row.cell)

    def sent(self, ask: Ask, cell: Cell) -> None:
        super().sent(ask, cell)
        home, held = self._home(ask)
        misses = ask.num_tokens - (held if home == cell.name else 0)
        is_free = self.loads[cell.name] <= cell.engine.places
        self._sent[ask.execution, ask.place] = _Sent(self._prefilling[cell.name], misses, is_free)
        self._prefilling[cell.name] += misses
        if ask.call.parent < 0:
            for name, _ in ask.call.prefix[1:]:
                self._homes[name] = (cell.name, self._times_left[cell.name])

    def first_token(self, ask: Ask, cell: Cell) -> None:
        sent = self._sent[ask.execution, ask.place]
        self._prefilling[cell.name] -= sent.misses
        sent.misses = 0
        if sent.is_free:
            self.pace.first_token(ask.here - ask.sent, sent.ahead + ask.num_tokens - ask.cached)
        self._homes[ask.call.own] = (cell.name, self._times_left[cell.name])

    def over(self, ask: Ask, cell: Cell, ended: bool) -> None:
        sent = self._sent.pop((ask.execution, ask.place))
        self._prefilling[cell.name] -= sent.misses
        if ended:
            now = cell.kernel.now
            self.pace.ended(now - ask.sent, now - ask.here, ask.call.output, self.loads[cell.name])
        super().over(ask, cell, ended)

    def left(self, cell: Cell) -> None:
        self._times_left[cell.name] += 1

    def moved(self, owner: str, cell: Cell) -> None:
        self._homes[owner] = (cell.name, self._times_left[cell.name])

    def _home(self, ask: Ask) -> tuple[str, int]:
        """Cell that has the newest of its context that is still anywhere, and how many tokens of it."""
        num = ask.num_tokens
        for name, size in reversed(ask.chain):
            cell, times = self._homes.get(name, ("", 0))
            if cell and times == self._times_left[cell]:
                return cell, num
            num -= size
        return "", 0
