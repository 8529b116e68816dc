"""A run whose model writes no tool call that can be parsed ends by itself and says why (A8)."""

import json
from pathlib import Path

from tests.fakes.whole_run import WholeRun


def test_the_run_ends_with_exit_code_1_and_the_reason(tmp_path: Path) -> None:
    """Random weights: now and then the mark that opens a call, never a call."""
    wanted = (
        "warm_start.executions=0",
        "warm_start.epochs=0",
        "gateway.malformed_window=5",
        "algo.updates=2",
        f"paths.cache={tmp_path / 'cache'}",
    )
    with WholeRun(tmp_path, "+experiment=quickstart_short", *wanted) as run:
        code = run.wait_end(within_s=300)
        assert code == 1, run.printed
        assert "tool calls in a row could not be parsed" in run.printed
        assert "gateway.malformed_window=5" in run.printed
        end = json.loads((run.folder.attempts / "1" / "end.json").read_text())
        assert "tool calls in a row" in end["reason"]
