"""What the simulation never reaches it proves nothing about: lines and branches of the machines, counted apart."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NUM_SEEDS, NUM_PARTS, LEAST = 162, 3, 90.0
"""Every action of every part fails within 18 seeds (simulation/draw.py). The parts run side by side."""
MEASURE = f"""
import coverage, gc, sys
measured = coverage.Coverage(branch=True, source_pkgs=["gyre_hpc.machines"], data_file=None, config_file=False)
measured.exclude(r"raise AssertionError")
measured.exclude(r"case _:\\n\\s+raise AssertionError")
measured.start()
from gyre_hpc.simulation.simtest import run_seed
gc.set_threshold(50_000)
for seed in range(int(sys.argv[2]), {NUM_SEEDS}, {NUM_PARTS}):
    run_seed(seed)
measured.stop()
measured.json_report(outfile=sys.argv[1])
"""
"""What only a broken rule of a machine's own reaches (AssertionError, a violation in the simulation) is not for it to reach."""


def _measure(folder: Path) -> list[dict[str, Any]]:
    told = [folder / f"{part}.json" for part in range(NUM_PARTS)]
    runs = [subprocess.Popen([sys.executable, "-c", MEASURE, str(path), str(part)], env=dict(os.environ)) for part, path in enumerate(told)]
    assert not any(run.wait() for run in runs)
    return [json.loads(path.read_bytes()) for path in told]


def _never(parts: list[dict[str, Any]], what: str) -> set[tuple[str, Any]]:
    """(file, line or branch) that no part reached."""
    missing = [
        {(name, tuple(one) if isinstance(one, list) else one) for name, facts in part["files"].items() for one in facts[what]}
        for part in parts
    ]
    return set.intersection(*missing)


def _told(branches: set[tuple[str, Any]]) -> str:
    lines = []
    for name, (start, end) in sorted(branches):
        source = Path(name).read_text().splitlines()[start - 1].strip()
        lines.append(f"{name}:{start} -> {max(end, 0) or 'exit'}: {source}")
    return "\n".join(lines)


@pytest.mark.timeout(900)  # a machine that is busy elsewhere
def test_the_simulation_reaches_nine_tenths_of_lines_and_of_branches(tmp_path: Path) -> None:
    parts = _measure(tmp_path)
    totals, branches = parts[0]["totals"], _never(parts, "missing_branches")
    of_lines = 100 * (1 - len(_never(parts, "missing_lines")) / totals["num_statements"])
    of_branches = 100 * (1 - len(branches) / totals["num_branches"])
    told = f"lines {of_lines:.1f} %, branches {of_branches:.1f} %"
    print(told)
    assert of_lines >= LEAST and of_branches >= LEAST, f"{told}\n{_told(branches)}"
