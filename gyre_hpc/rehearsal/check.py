"""`gyre harness check`: every scenario a harness can play, one after the other, with a table at the end."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gyre_hpc.rehearsal.base import Scenario
from gyre_hpc.rehearsal.company import Performance, Rehearsal, company
from gyre_hpc.rehearsal.dialects import dialect_of
from gyre_hpc.rehearsal.place import place
from gyre_hpc.rehearsal.recorder import Recorder
from gyre_hpc.rehearsal.scenarios import SCENARIOS
from gyre_hpc.rehearsal.verdict import Outcome

Keep = Callable[[Scenario, Performance], None]
Say = Callable[[str], None]


async def rehearse(rehearsal: Rehearsal, scenarios: Sequence[Scenario], say: Say, keep: Keep | None = None) -> list[Outcome]:
    """Play them in order; what the harness cannot do is left out and said so. Raises UserError, CellFailed."""
    dialect, outcomes = dialect_of(rehearsal.harness), list[Outcome]()
    async with company(rehearsal) as here:
        for scenario in _with_measure(scenarios):
            missing = sorted(ability.value for ability in scenario.needs - dialect.abilities)
            if missing:
                outcomes.append(Outcome(scenario=scenario.name, skipped=f"no {', '.join(missing)}"))
                continue
            say(f"{scenario.name}: {scenario.about}")
            outcome, performance = await here.perform(scenario)
            for problem in outcome.problems:
                say(f"  {problem}")
            if keep is not None and outcome.passed:
                keep(scenario, performance)
            outcomes.append(outcome)
    return outcomes


def _with_measure(scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    """A full context can only be played once the first prompt was measured."""
    if scenarios and scenarios[0].window:
        return (SCENARIOS[0], *scenarios)
    return scenarios


def main(rehearsal: Rehearsal, scenarios: Sequence[Scenario], record: Path | None = None) -> int:
    """Play, print, and say with the exit code whether all went well. `record`: folder for what was sent and answered."""
    console = Console()
    recorder = Recorder(rehearsal) if record is not None else None
    # What is stopped from outside leaves as little behind as what a person stops.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with place(keep=rehearsal.keep) as above:
        placed = replace(rehearsal, folder=above)
        try:
            outcomes = asyncio.run(
                rehearse(
                    placed, scenarios, lambda line: console.print(line, markup=False, highlight=False), recorder.keep if recorder else None
                )
            )
        finally:
            if rehearsal.keep:
                console.print(f"kept: {above}", markup=False)
    console.print(table(rehearsal.harness, outcomes))
    if recorder is not None and record is not None:
        console.print(f"recorded: {recorder.recording.write(record)}", markup=False)
    failed = [outcome.scenario for outcome in outcomes if outcome.problems]
    num_played = sum(not outcome.skipped for outcome in outcomes)
    console.print(f"{num_played - len(failed)} of {num_played} scenarios as they must be", markup=False)
    return 1 if failed else 0


def table(harness: str, outcomes: Sequence[Outcome]) -> Table:
    drawn = Table(title=f"rehearsal of {harness}")
    for name in ("scenario", "result", "calls", "branches", "tokens", "continued", "seconds"):
        drawn.add_column(name, justify="left" if name in ("scenario", "result", "calls", "branches") else "right")
    for outcome in outcomes:
        if outcome.skipped:
            drawn.add_row(outcome.scenario, "left out", outcome.skipped)
            continue
        drawn.add_row(
            outcome.scenario,
            "ok" if outcome.passed else "FAILED",
            _counted(outcome.roles),
            _counted(outcome.branches),
            str(outcome.num_output),
            str(outcome.num_continued or ""),
            f"{outcome.seconds:.1f}",
        )
    return drawn


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{num} {name}" for name, num in counts.items() if num)
