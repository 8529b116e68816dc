"""What a report must say for the controller to look at everything at once."""

from typing import Any

import msgspec
import pytest

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.batch.machine import BatchMachine
from gyre_hpc.machines.batch.news import has_news
from gyre_hpc.protocol.to_batch import CellReport, GatewayReport, KvFacts, RunnerReport
from tests.fakes.batch_bench import report, serving

CELL = report("cell-1", 50)
GATEWAY = GatewayReport("gateway-0", 1, 50, 3, 7)
RUNNER = RunnerReport("runner-0", 1, 50, 2, running=("train-0-0-0",))


def after(before: Any) -> BatchMachine:
    made = serving()
    made.handle(1.0, Received(getattr(before, "cell", "other"), before))
    return made


@pytest.mark.parametrize(
    ("before", "quiet"),
    [
        (CELL, {"live_requests": 9, "cpu_s": 3.0, "tokens": {"sampled": 4}, "kv": KvFacts("pages", 7)}),
        (GATEWAY, {"live_calls": 9, "waiting_calls": 2, "cpu_s": 3.0}),
        (RUNNER, {"cpu_s": 3.0, "harness_cpu_s": 1.0}),
    ],
)
def test_figures_alone_wait_for_the_tick(before: Any, quiet: dict[str, Any]) -> None:
    made = after(before)
    again = msgspec.structs.replace(before, seq=51, **quiet)
    assert not has_news(made.state, again)
    made.handle(1.1, Received("other", again))
    assert again in (*made.state.gateways.values(), *made.state.runners.values(), made.state.fleet.cells["cell-1"].report), (
        "but they are kept"
    )


@pytest.mark.parametrize(
    ("before", "news"),
    [
        (CELL, {"error": "no room"}),
        (CELL, {"term": 99}),
        (CELL, {"fitted": "warm"}),
        (CELL, {"spoiled": "a rank was lost"}),
        (CELL, {"incarnation": 2}),
        (GATEWAY, {"table": 4}),
        (GATEWAY, {"storage_full": "/journal"}),
        (GATEWAY, {"first_fact": 8}),
        (RUNNER, {"running": ()}),
        (RUNNER, {"queued": ("train-0-0-1",)}),
        (RUNNER, {"assignment": 3}),
    ],
)
def test_facts_are_looked_at_at_once(before: Any, news: dict[str, Any]) -> None:
    assert has_news(after(before).state, msgspec.structs.replace(before, seq=51, **news))


@pytest.mark.parametrize("first", [CELL, GATEWAY, RUNNER, CellReport("cell-77", 0, 1, 0, 0, CELL.state)])
def test_the_first_word_of_a_process_is_news(first: Any) -> None:
    made = BatchMachine(serving().state.settings, serving()._membership)
    assert has_news(made.state, first)
