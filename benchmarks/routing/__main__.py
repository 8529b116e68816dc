"""Where calls go: ours beside a plain cache-aware router and round-robin: python -m benchmarks.routing [--quick].

Prints a table; the last line is JSON: `hit_rate_*`, `queue_p95_s_*` and `first_token_p95_s_*` of the recorded workload as it was
recorded (24 executions at once, cells leaving), every row, and `worse`: each comparison that ours does not win, by how much.
Seconds are simulated; the same command gives the same figures anywhere.
"""

import argparse
import json
import statistics

from benchmarks.routing.scenarios import CELLS, HEADLINE, OURS, ROUTERS, Scenario, outcome, scenarios, workloads
from benchmarks.routing.study import Outcome
from benchmarks.routing.workload import shape

_HIT, _QUEUE = 0.001, 0.05
"""Hit rates and queues this much apart (absolute; share) count as equal."""
_FIGURES = ("hit_rate", "queue_p95_s", "first_token_p95_s", "makespan_s")
Row = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description="Routers beside each other on recorded and derived workloads.")
    parser.add_argument("--quick", action="store_true", help="half of each workload, one seed")
    quick = parser.parse_args().quick
    lists = {name: workloads(name, quick) for name in ("recorded", "heavy")}
    for name, seeds in lists.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in shape(seeds[0]).items()) + f", {len(seeds)} seed(s)")
    print(f"{CELLS} cells\n{'scenario':<20}{'router':<19}{'hit rate':>9}{'queue p95':>11}{'first p95':>11}{'makespan':>11}")
    rows: dict[str, dict[str, Row]] = {}
    for scenario in scenarios():
        for router in scenario.routers:
            row = _mean([outcome(scenario, router, executions) for executions in lists[scenario.workload]])
            rows.setdefault(scenario.name, {})[router] = row
            _show(scenario, router, row)
    print(json.dumps(_last_line(rows, quick)))


def _mean(outcomes: list[Outcome]) -> Row:
    return {name: round(statistics.mean(getattr(one, name) for one in outcomes), 5) for name in _FIGURES}


def _show(scenario: Scenario, router: str, row: Row) -> None:
    times = "".join(f"{row[name]:>11.3f}" for name in _FIGURES[1:])
    print(f"{scenario.name:<20}{router:<19}{row['hit_rate']:>9.4f}{times}", flush=True)


def _last_line(rows: dict[str, dict[str, Row]], quick: bool) -> dict[str, object]:
    headline = {f"{name}_{router}": rows[HEADLINE][router][name] for name in _FIGURES[:3] for router in ROUTERS}
    compared = [(name, router) for name, by_router in rows.items() for router in by_router if router != OURS]
    return {
        "benchmark": "routing",
        "quick": quick,
        "headline": HEADLINE,
        **headline,
        "comparisons": 2 * len(compared),
        "worse": [line for name, router in compared for line in _worse(name, router, rows[name][OURS], rows[name][router])],
        "rows": rows,
    }


def _worse(scenario: str, router: str, ours: Row, other: Row) -> list[str]:
    lines = []
    if ours["hit_rate"] < other["hit_rate"] - _HIT:
        lines.append(f"{scenario}: hit rate {ours['hit_rate']:.4f}, {router} {other['hit_rate']:.4f}")
    if ours["queue_p95_s"] > other["queue_p95_s"] * (1 + _QUEUE) + 1e-3:
        lines.append(f"{scenario}: queue p95 {ours['queue_p95_s']:.3f} s, {router} {other['queue_p95_s']:.3f} s")
    return lines


if __name__ == "__main__":
    main()
