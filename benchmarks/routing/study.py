"""One workload at one load through one router: executions side by side, each call after the tool before it, on the kernel.

Cells may leave for a while, one after another, as for training: their calls go on elsewhere from the tokens so far, their
cache is gone when they come back. With KV migration what the plan of scheduler/migration.py chooses is at its target at once,
and the cell's calls are sent on when the transfer has taken its time.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.routing.cell import Ask, Cell, Engine
from benchmarks.routing.routers import Router
from benchmarks.routing.workload import Execution
from gyre_hpc.scheduler.migration import Conversation, Speeds, Target, plan_moves
from gyre_hpc.simulation.kernel import Kernel

_LIMIT_S, _LIMIT_EVENTS = 1e9, 20_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """Every `every_s` another cell leaves for `away_s`."""

    every_s: float
    away_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Figures of one run. Seconds are simulated."""

    hit_rate: float
    """Prompt tokens found cached / prompt tokens, continuations after a cell left included."""
    queue_p95_s: float
    """From a call's asking to the beginning of its first prefill."""
    first_token_p95_s: float
    first_token_mean_s: float
    makespan_s: float
    calls: int
    moved_tokens: int
    fingerprint: int


class Study:
    """All cells, executions and counters of one run."""

    def __init__(
        self, executions: Sequence[Execution], router: Router, engine: Engine, *, cells: int, live: int, leaving: Leaving | None = None
    ) -> None:
        self._kernel = Kernel(0)
        self._executions, self._router, self._live, self._leaving = executions, router, live, leaving
        self._cells = [Cell(f"cell-{n}", engine, self._kernel, self._first, self._ended) for n in range(cells)]
        self._resting: dict[int, Ask] = {}
        """Execution -> its newest call, while its agent uses a tool."""
        self._next, self._num_over, self._num_left = 0, 0, 0
        self._ended_calls: list[Ask] = []
        self._prompt = self._cached = self._moved = 0

    def run(self) -> Outcome:
        """To the end of the last execution."""
        for _ in range(min(self._live, len(self._executions))):
            self._begin()
        if self._leaving is not None:
            self._kernel.at(self._leaving.every_s, self._leave)
        self._kernel.run(lambda: self._num_over == len(self._executions), _LIMIT_S, _LIMIT_EVENTS)
        firsts = [ask.first - ask.since for ask in self._ended_calls if ask.first is not None]
        return Outcome(
            hit_rate=self._cached / self._prompt,
            queue_p95_s=_p95(ask.began - ask.since for ask in self._ended_calls if ask.began is not None),
            first_token_p95_s=_p95(firsts),
            first_token_mean_s=sum(firsts) / len(firsts),
            makespan_s=self._kernel.now,
            calls=len(self._ended_calls),
            moved_tokens=self._moved,
            fingerprint=self._kernel.fingerprint,
        )

    def _begin(self) -> None:
        number, self._next = self._next, self._next + 1
        self._ask(number, 0)

    def _ask(self, number: int, place: int) -> None:
        execution = self._executions[number]
        self._resting.pop(number, None)
        self._send(Ask(execution=number, place=place, call=execution.calls[place], since=self._kernel.now, group=execution.group))

    def _send(self, ask: Ask) -> None:
        cell = self._router.route(ask, [cell for cell in self._cells if cell.is_open])
        self._kernel.mark(cell.name, str(ask.execution), str(ask.place))
        self._router.sent(ask, cell)
        cell.take(ask)

    def _first(self, cell: Cell, ask: Ask) -> None:
        self._prompt += ask.num_tokens
        self._cached += ask.cached
        self._router.first_token(ask, cell)

    def _ended(self, cell: Cell, ask: Ask) -> None:
        self._router.over(ask, cell, ended=True)
        self._ended_calls.append(ask)
        if ask.place + 1 < len(self._executions[ask.execution].calls):
            self._resting[ask.execution] = ask
            self._kernel.at(ask.call.tool_s, lambda: self._ask(ask.execution, ask.place + 1))
            return
        self._num_over += 1
        if self._next < len(self._executions):
            self._begin()

    def _leave(self) -> None:
        assert self._leaving is not None
        cell = self._cells[self._num_left % len(self._cells)]
        self._num_left += 1
        asks = cell.leave()
        for ask in asks:
            self._router.over(ask, cell, ended=False)
        seconds = self._move(cell, asks)
        cell.forget()
        self._router.left(cell)
        for ask in asks:
            self._kernel.at(seconds, lambda ask=ask: self._send(ask))  # type: ignore[misc]
        self._kernel.at(self._leaving.away_s, cell.come_back)
        self._kernel.at(self._leaving.every_s, self._leave)

    def _move(self, source: Cell, asks: Sequence[Ask]) -> float:
        """Give KV of conversations that go on to other cells; return the seconds it took."""
        engine = source.engine
        if not engine.move_tokens_s:
            return 0.0
        chains = {ask.call.own: ask.chain for ask in asks}
        chains.update({ask.call.own: ask.chain for ask in self._resting.values()})
        found = [
            Conversation(
                call=owner, num_tokens=source.match(chain) // engine.page * engine.page, is_live=any(ask.call.own == owner for ask in asks)
            )
            for owner, chain in chains.items()
        ]
        targets = [
            Target(cell=cell.name, free_tokens=engine.kv_tokens, live_requests=cell.num_calls) for cell in self._cells if cell.is_open
        ]
        speeds = Speeds(prefill=engine.prefill_tokens_s, move=engine.move_tokens_s)
        by_name, tokens = {cell.name: cell for cell in self._cells}, 0
        for move in plan_moves([one for one in found if one.num_tokens], targets, speeds, engine.move_budget_s):
            by_name[move.cell].keep(_head(chains[move.call], move.num_tokens))
            self._router.moved(move.call, by_name[move.cell])
            tokens += move.num_tokens
        self._moved += tokens
        return tokens / engine.move_tokens_s


def _head(chain: tuple[tuple[str, int], ...], num: int) -> tuple[tuple[str, int], ...]:
    """The first `num` tokens of a chain."""
    head = []
    for name, size in chain:
        head.append((name, min(size, num)))
        num -= min(size, num)
        if num <= 0:
            break
    return tuple(head)


def _p95(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0.0
