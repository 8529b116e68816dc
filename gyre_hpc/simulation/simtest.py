"""`gyre simtest`: many seeds, each a run of the real machines under its own faults; a failing one prints its schedule."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from gyre_hpc.simulation.draw import draw
from gyre_hpc.simulation.run import Outcome, Simulation


def main(*, seeds: int, first: int = 0, verbose: bool = False, trace: bool = False) -> int:
    """Exit code 0 when every promise held under every seed, else 1."""
    outcomes = _all(range(first, first + seeds), trace)
    failed = 0
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    events, fewest_events, fewest_faults = 0, 1 << 60, 1 << 60
    for outcome in outcomes:
        events += outcome.events
        fewest_events = min(fewest_events, outcome.events)
        fewest_faults = min(fewest_faults, sum(outcome.faults.values()))
        total.update(outcome.counts)
        faults.update(outcome.faults)
        if verbose or outcome.violation:
            print(describe(outcome), flush=True)
        failed += bool(outcome.violation)
    by_kind = ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items()))
    print(
        f"simtest: {seeds} seeds, {failed} failed; {events} events (fewest {fewest_events}), {sum(faults.values())} faults (fewest "
        f"{fewest_faults}): {by_kind}; {total['applies']} updates, {total['calls']} calls, {total['tokens']} tokens, "
        f"{total['starts']} process starts"
    )
    return 1 if failed else 0


def run_seed(seed: int) -> Outcome:
    """The whole life of one seed."""
    return Simulation(draw(seed)).run()


def describe(outcome: Outcome) -> str:
    """Schedule and end of one seed; what to type to see it again."""
    struck = sum(outcome.faults.values())
    lines = [
        str(outcome.scenario),
        f"  {outcome.events} events, {outcome.seconds:.1f} simulated seconds, {struck} faults struck, fingerprint {outcome.fingerprint:08x}",
    ]
    if outcome.violation:
        lines += [
            *(f"    {line}" for line in outcome.waits),
            f"  FAILED: {outcome.violation}",
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
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run_seed, wanted, chunksize=4)
