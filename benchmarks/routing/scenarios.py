"""Workloads, loads and engines that are compared. One line of a table is one scenario and router, averaged over seeds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.routing.cell import Engine
from benchmarks.routing.routers import CacheAware, Ours, RoundRobin, Router, Thresholds
from benchmarks.routing.study import Leaving, Outcome, Study
from benchmarks.routing.workload import Execution, heavy_tailed, recorded

CELLS = 4
SMALL = Engine(places=16, prefill_tokens_s=2000, decode_tokens_s=900, half=4, kv_tokens=65_536)
"""About a cell of the quickstart on one CPU core."""
LARGE = Engine(places=32, prefill_tokens_s=20_000, decode_tokens_s=3000, half=24, kv_tokens=1_000_000)
"""Assumed for a model of some billions of parameters on one large GPU; not measured."""
MOVING = replace(LARGE, move_tokens_s=200_000, move_budget_s=5.0)
OURS, PLAIN, TIGHT, ROUND = "ours", "cache_aware", "cache_aware_tight", "round_robin"
ROUTERS: dict[str, Callable[[], Router]] = {
    OURS: Ours,
    PLAIN: CacheAware,
    TIGHT: lambda: CacheAware(Thresholds(cache=0.5, balance_abs=8, balance_rel=1.2)),
    ROUND: RoundRobin,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    workload: str
    live: int
    cells: str
    """stay, leave, leave+kv."""
    engine: Engine
    leaving: Leaving | None

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.live}/{self.cells}"

    @property
    def routers(self) -> tuple[str, ...]:
        """KV migration is ours alone: the others have nobody who would tell them."""
        return (OURS,) if self.cells == "leave+kv" else tuple(ROUTERS)


HEADLINE = "recorded/24/leave"
"""As the recorded run was: 24 executions at once, a role change every two seconds or so."""


def scenarios() -> Iterator[Scenario]:
    often, seldom = Leaving(every_s=2.0, away_s=1.5), Leaving(every_s=120.0, away_s=90.0)
    for live in (24, 48, 96):
        yield Scenario(workload="recorded", live=live, cells="stay", engine=SMALL, leaving=None)
        yield Scenario(workload="recorded", live=live, cells="leave", engine=SMALL, leaving=often)
    for live in (16, 48, 128):
        yield Scenario(workload="heavy", live=live, cells="stay", engine=LARGE, leaving=None)
        yield Scenario(workload="heavy", live=live, cells="leave", engine=LARGE, leaving=seldom)
        yield Scenario(workload="heavy", live=live, cells="leave+kv", engine=MOVING, leaving=seldom)


def workloads(name: str, quick: bool) -> list[list[Execution]]:
    """One list of executions per seed; the recorded one cannot be drawn anew."""
    if name == "recorded":
        return [recorded(480 if quick else 960)]
    return [heavy_tailed(120 if quick else 240, seed) for seed in range(1 if quick else 5)]


def outcome(scenario: Scenario, router: str, executions: Sequence[Execution]) -> Outcome:
    return Study(executions, ROUTERS[router](), scenario.engine, cells=CELLS, live=scenario.live, leaving=scenario.leaving).run()
