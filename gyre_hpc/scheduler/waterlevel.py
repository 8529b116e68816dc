"""Waterlevel: how much one more rollout cell is worth now, from the measured engine curve.

r(R) = [tput(L, R) - tput(L, R - 1)] / tput_saturated, with tput(L, R) = R * curve(L / R): the live executions spread
evenly, since the gateway balances. Source: notes on scheduling, §7 (rule `press`).

Invariants (each has a test):
  - r never grows with R: a measured curve is replaced by its least concave majorant, so that noise of a measurement
    cannot make the level jump up and down (two unequal loads reach every point of the majorant);
  - 0 <= r <= 1, and for the half-saturation model r(R) tends to (x / (1 + x))^2 with x = L / (R * half).
"""

import msgspec

from gyre_hpc.scheduler.base import EngineCurve, Facts, Waterlevel

FULL_BATCH_THETA = 2.0
"""Above every r: a full batch is never starved."""
_ROUNDING = 1e-9
"""Where the curve is linear r is 0 up to rounding; without this the search would not be monotone at theta = 0."""


def threshold(facts: Facts, theta0: float) -> float:
    """theta: cells whose marginal value is at most this may be lent. Rises from theta0 to 1 with training pressure."""
    if facts.batch_full:
        return FULL_BATCH_THETA
    return theta0 + (1.0 - theta0) * ready_share(facts)


def ready_share(facts: Facts) -> float:
    """b in [0, 1]: share of the next batch's groups that are ready."""
    return min(1.0, facts.groups_ready / max(1, facts.groups_per_batch))


def concave(curve: EngineCurve) -> EngineCurve:
    """The least concave, never falling curve above the measured points; the half-saturation model is one already."""
    if not curve.points:
        return curve
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for x, y in curve.points:
        if x <= hull[-1][0]:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    top = max(range(len(hull)), key=lambda i: hull[i][1])
    return msgspec.structs.replace(curve, points=tuple(hull[1 : top + 1]) if top else ())


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def marginal(curve: EngineCurve, live: int, rollout_cells: int) -> float:
    """r(R): what the R-th rollout cell adds, in whole saturated cells. `curve` must be concave (see `concave`)."""
    if rollout_cells < 1 or live <= 0:
        return 0.0
    gain = _throughput(curve, live, rollout_cells) - _throughput(curve, live, rollout_cells - 1)
    return min(1.0, max(0.0, gain / curve.saturated()))


def _throughput(curve: EngineCurve, live: int, cells: int) -> float:
    return cells * curve.throughput(live / cells) if cells > 0 else 0.0


def cells_needed(curve: EngineCurve, live: int, cells: int, theta: float) -> int:
    """Smallest R in [0, cells] with r(R + 1) <= theta; `cells` when even the last cell is worth more."""
    low, high = 0, cells
    while low < high:
        middle = (low + high) // 2
        if marginal(curve, live, middle + 1) <= theta + _ROUNDING:
            high = middle
        else:
            low = middle + 1
    return low


def waterlevel(facts: Facts, theta0: float) -> Waterlevel:
    """The state shown to people and logged with each decision."""
    theta = threshold(facts, theta0)
    curve = concave(facts.curve)
    serving = max(1, facts.cells - facts.training)
    return Waterlevel(
        live=facts.live,
        marginal=marginal(curve, facts.live, serving),
        ready=ready_share(facts),
        cells_needed=cells_needed(curve, facts.live, facts.cells, theta),
        theta=theta,
    )
