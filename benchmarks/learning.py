"""Does the quickstart learn, and learn from rewards alone: python -m benchmarks.learning [--quick].

Whole runs of `launch.py`, one after another: three seeds, one control with shuffled rewards, and each scheduler mode once
(the elastic one is seed 0). `--quick` makes half the updates, for one seed, its control and one other mode. Prints a table; the last line is JSON:
{"benchmark", "updates", "rise": {seed: points}, "control_rise", "rise_by_mode": {mode: points}, "spread_of_seeds",
"satellites_share": {run: share of its micro-batches made by satellites, 0..1}}.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODES = ("colocate", "colocate_carry", "async")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run to make."""

    name: str
    overrides: tuple[str, ...]


def plan(quick: bool) -> list[Run]:
    """Runs in order; the warm start of a seed is made once and shared through the cache."""
    short = ("+experiment=quickstart_short",) if quick else ()
    seeds, modes = ((0,), ("colocate_carry",)) if quick else ((0, 1, 2), MODES)
    runs = [Run(name=f"seed {seed}", overrides=(*short, f"seed={seed}")) for seed in seeds]
    runs.append(Run(name="control", overrides=(*short, "seed=0", "algo.shuffle_rewards=true")))
    return runs + [Run(name=mode, overrides=(*short, "seed=0", f"scheduler={mode}")) for mode in modes]


def make(run: Run, folder: Path) -> dict[str, object]:
    """Run it to its end and return its summary. Raises CalledProcessError when it fails."""
    subprocess.run([sys.executable, "launch.py", f"paths.run={folder}", *run.overrides], check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return summary


def points(summary: dict[str, object]) -> float:
    """Rise of the held-out pass rate in percentage points."""
    before, after = summary["pass_rate_before"], summary["pass_rate_after"]
    assert isinstance(before, float) and isinstance(after, float)
    return round(100 * (after - before), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Learning of the quickstart: seeds, control, scheduler modes.")
    parser.add_argument("--quick", action="store_true", help="half the updates, one seed, one other mode")
    quick = parser.parse_args().quick
    rises: dict[str, float] = {}
    shares: dict[str, float] = {}
    print(f"{'run':<16}{'before %':>10}{'after %':>10}{'rise':>8}{'wall s':>9}{'CPU s':>9}", flush=True)
    updates = 0
    with tempfile.TemporaryDirectory(prefix="gyre-learning-") as above:
        for index, run in enumerate(plan(quick)):
            summary = make(run, Path(above) / str(index))
            rises[run.name] = points(summary)
            shares[run.name] = round(float(str(summary["micro_batches_by_satellites_share"])), 3)
            updates = int(str(summary["updates"]))
            before, after = (100 * float(str(summary[key])) for key in ("pass_rate_before", "pass_rate_after"))
            cpu = summary["cpu_s"]
            assert isinstance(cpu, dict)
            print(
                f"{run.name:<16}{before:>10.1f}{after:>10.1f}{rises[run.name]:>8.1f}{summary['wall_s']:>9.0f}{cpu['total']:>9.0f}",
                flush=True,
            )
    seeds = {name.removeprefix("seed "): rise for name, rise in rises.items() if name.startswith("seed ")}
    figures = {
        "benchmark": "learning",
        "updates": updates,
        "rise": seeds,
        "control_rise": rises["control"],
        "rise_by_mode": {"elastic": seeds["0"]} | {mode: rises[mode] for mode in MODES if mode in rises},
        "spread_of_seeds": round(max(seeds.values()) - min(seeds.values()), 1),
        "satellites_share": shares,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
