"""Role changes of a real run: the quickstart, which lends and recalls cells while executions go on. Reads its events.

A full measurement wants WANTED changes; runs are made until there are so many.
"""

import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from gyre_hpc.report.story import Story, read_story

DIRECTIONS = ("rollout_to_train", "train_to_rollout")
WANTED = 50
_MOST_RUNS = 5


@dataclass(slots=True)
class Switches:
    """Seconds by step of every role change seen, and how much of the cells' training phase they took."""

    steps: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {name: [] for name in DIRECTIONS})
    cell_s: float = 0.0
    """Cells times seconds of training phases."""

    @property
    def count(self) -> int:
        return sum(len(found) for found in self.steps.values())

    def add(self, story: Story) -> None:
        for event in story.of("switch"):
            seconds = {name: float(value) for name, value in event.fields["steps"].items()}
            self.steps[str(event.fields["direction"])].append(seconds)
        phases = story.of("phase")
        for event, later in zip(phases, [*phases[1:], None], strict=True):
            if event.fields["phase"] == "training":
                self.cell_s += story.config.cluster.cells * ((later.time if later is not None else story.end) - event.time)

    def totals(self, direction: str) -> list[float]:
        """Whole changes, sorted. Before its first step a cell still serves: `leave_table` is not part of it."""
        return sorted(sum(value for name, value in one.items() if name != "leave_table") for one in self.steps[direction])

    def share_of_wall(self) -> float:
        return sum(sum(self.totals(direction)) for direction in DIRECTIONS) / self.cell_s

    def table(self) -> str:
        """Median and 95th percentile of each step, in milliseconds."""
        lines = [f"{'role change':<20}{'step':<20}{'median ms':>10}{'p95 ms':>10}{'seen':>6}"]
        for direction in DIRECTIONS:
            named: dict[str, list[float]] = {}
            for one in self.steps[direction]:
                for step, value in one.items():
                    named.setdefault(step, []).append(value)
            for step, values in [*named.items(), ("all but leave_table", self.totals(direction))]:
                told = "".join(f"{1e3 * value:>10.1f}" for value in (statistics.median(values), p95(values))) if values else f"{'-':>20}"
                lines.append(f"{direction:<20}{step:<20}{told}{len(values):>6}")
        return "\n".join(lines)


def p95(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def measure(folder: Path, quick: bool) -> Switches:
    """Whole runs of launch.py: a short one, or as many as it takes. Raises CalledProcessError when one fails."""
    found = Switches()
    for number in range(1 if quick else _MOST_RUNS):
        run = folder / f"run-{number}"
        short = ("+experiment=quickstart_short", "evaluation.tasks=20") if quick else ()
        command = [sys.executable, "launch.py", f"paths.run={run}", f"seed={number}", *short]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        found.add(read_story(run))
        if found.count >= WANTED:
            break
    return found
