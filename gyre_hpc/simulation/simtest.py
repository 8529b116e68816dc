"""`gyre simtest`: many seeds, each a run of the real machines under its own faults; a failing one prints its schedule."""

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from gyre_hpc.simulation.draw import draw
from gyre_hpc.simulation.run import Outcome, Simulation

MINIMA = {"cells": 4, "shards": 2, "executions": 8, "updates": 3, "faults": 10, "events": 1000}
"""A seed that has less of anything proves too little: it fails."""
_GARBAGE = 50_000
"""Objects made before Python looks for cycles: a seed is short, and looking costs a tenth of it."""


def main(*, seeds: int, first: int = 0, verbose: bool = False, trace: bool = False) -> int:
    """Exit code 0 when every promise held under every seed, and no seed was too small; else 1."""
    failed = 0
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    fewest: dict[str, int] = {}
    for outcome in _all(range(first, first + seeds), trace):
        total.update(outcome.counts)
        faults.update(outcome.faults)
        sizes.update(outcome.sizes)
        if not _gave_up(outcome):
            fewest = {name: min(fewest.get(name, size), size) for name, size in outcome.sizes.items()}
        wrong = trouble(outcome)
        if verbose or wrong:
            print(describe(outcome), flush=True)
        failed += bool(wrong)
    gave_up = total["gave_up_rightly"]
    print(f"simtest: {seeds} seeds, {failed} failed" + (f", {gave_up} gave up rightly" if gave_up else ""))
    print("  fewest of a seed: " + ", ".join(f"{number} {name}" for name, number in fewest.items()))
    print("  in all: " + ", ".join(f"{number} {name}" for name, number in sizes.items()))
    print("  faults: " + ", ".join(f"{number} {kind}" for kind, number in sorted(faults.items())))
    print("  of it: " + ", ".join(f"{total[name]} {name.replace('_', ' ')}" for name in _TOLD))
    return 1 if failed else 0


_TOLD = ("calls", "tokens", "attempts", "accumulated", "accumulated_by_satellites", "hand_ins", "starts")


def run_seed(seed: int) -> Outcome:
    """The whole life of one seed."""
    return Simulation(draw(seed)).run()


def trouble(outcome: Outcome) -> str:
    """Why a seed failed; empty when it did not."""
    if _gave_up(outcome):
        return outcome.violation
    small = [f"{outcome.sizes[name]} {name}, not {least}" for name, least in MINIMA.items() if outcome.sizes[name] < least]
    return outcome.violation or (f"the seed is too small: {'; '.join(small)}" if small else "")


def _gave_up(outcome: Outcome) -> bool:
    """Its run ended before its updates, with a reason that the ground truth confirmed: it has no size."""
    return outcome.counts.get("gave_up_rightly", 0) > 0


def describe(outcome: Outcome) -> str:
    """Schedule and end of one seed; what to type to see it again."""
    sizes = ", ".join(f"{number} {name}" for name, number in outcome.sizes.items())
    lines = [
        str(outcome.scenario),
        f"  {sizes}; {outcome.seconds:.1f} simulated seconds, fingerprint {outcome.fingerprint:08x}",
    ]
    if wrong := trouble(outcome):
        lines += [
            *(f"    {line}" for line in outcome.waits),
            f"  FAILED: {wrong}",
            f"  again: gyre simtest --seed {outcome.scenario.seed} [--trace]",
        ]
    return "\n".join(lines)


def _all(seeds: Iterable[int], trace: bool) -> Iterator[Outcome]:
    wanted = list(seeds)
    workers = min(len(wanted), os.cpu_count() or 1)
    if trace or workers < 2:
        for seed in wanted:
            yield Simulation(draw(seed), print if trace else None).run()
        return
    with ProcessPoolExecutor(workers, initializer=_seldom_look) as pool:
        yield from pool.map(run_seed, wanted, chunksize=4)


def _seldom_look() -> None:
    gc.freeze()
    gc.set_threshold(_GARBAGE)
