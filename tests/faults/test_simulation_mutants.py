"""Bugs of one line, kept as patches (tests/mutants): the simulation finds each within 200 seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.patched_package import ROOT, patched_copy, read_patch

MOST_SEEDS = 200
MUTANTS = sorted((ROOT / "tests" / "mutants").glob("*.patch"))
NAMES = {
    "answer_before_persist",
    "executions_of_a_lost_runner_forgotten",
    "expired_lease_accumulates",
    "kv_page_freed_under_lease",
    "late_request_parked",
    "node_without_a_fence",
    "old_attempt_accepted",
    "older_order_carried_out",
    "one_rank_acknowledgement_suffices",
    "only_leased_ids_returned",
    "prefilling_cell_in_the_table",
    "retry_joins_no_call",
    "staleness_counter_lost_at_restart",
    "step_before_the_manifest_check",
    "stop_told_too_early",
    "term_not_compared",
    "tokens_dropped_at_abort",
}
HUNT = f"""
import gc
from gyre_hpc.simulation.simtest import run_seed
gc.set_threshold(50_000)
for seed in range({MOST_SEEDS}):
    outcome = run_seed(seed)
    if outcome.violation:
        print(seed + 1, outcome.violation)
        break
"""
BROKEN = ("ImportError", "IndentationError", "NameError", "SyntaxError", "TypeError")
"""Not a bug that was found, but a patch that makes no program."""


def test_the_mutants_are_those_that_were_promised() -> None:
    assert {patch.stem for patch in MUTANTS} == NAMES
    assert all(read_patch(patch)[0].startswith("gyre_hpc/machines/") for patch in MUTANTS)


@pytest.mark.timeout(900)  # a machine that is busy elsewhere
@pytest.mark.parametrize("patch", MUTANTS, ids=lambda patch: patch.stem)
def test_a_mutant_is_found(patch: Path, tmp_path: Path) -> None:
    tree = patched_copy(patch, tmp_path)
    hunt = subprocess.run(
        [sys.executable, "-c", HUNT],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert hunt.stdout, f"{patch.stem} lived through {MOST_SEEDS} seeds"
    print(hunt.stdout)
    assert not any(kind in hunt.stdout for kind in BROKEN), hunt.stdout
