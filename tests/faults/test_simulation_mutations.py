"""The simulation can fail: bugs planted in the machines are found within a bounded number of seeds.

Those that one changed line makes are kept as patches (test_simulation_mutants.py); these need more than a line."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gyre_hpc.machines.base import CancelTimer
from gyre_hpc.machines.batch import consolidation, planning, restore
from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.ledger import Ledger
from gyre_hpc.machines.call import delivery, sampling
from gyre_hpc.machines.cell import machine as cell_machine
from gyre_hpc.machines.cell.training import Sum
from gyre_hpc.simulation.simtest import run_seed

MOST_SEEDS = 40
Plant = Callable[[pytest.MonkeyPatch], None]


def fence_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sum, "stands_for", lambda self, order: self.update == order.update)
    patch.setattr(Sum, "restart", _restart_of_update_only)


def _restart_of_update_only(self: Sum, update: int, fence: int) -> None:
    self.dirty = False
    if self.update != update:
        self.closed, self.handed_in, self.facts, self.begun = "", False, [], set()
    self.update, self.fence = update, fence


def older_order_accepted(patch: pytest.MonkeyPatch) -> None:
    def take(self: Any, now: float, order: Any) -> None:
        self.state.order = order

    patch.setattr(cell_machine.CellMachine, "_take", take)


def manifest_not_compared(patch: pytest.MonkeyPatch) -> None:
    """What is missing, a hand-in that never arrived for one, is not noticed."""
    patch.setattr(Ledger, "covers", lambda self, manifests: True)
    patch.setattr(Ledger, "is_accumulated", lambda self: not self.waiting())


def consumed_forgotten_at_restart(patch: pytest.MonkeyPatch) -> None:
    published = restore._published

    def forgetful(state: Any, version: Any, update: int) -> None:
        published(state, version, -1)

    patch.setattr(restore, "_published", forgetful)


def apply_before_the_intent_is_durable(patch: pytest.MonkeyPatch) -> None:
    intend = consolidation._intend

    def hasty(state: Any) -> Any:
        effects = intend(state)
        state.intents[state.update] = effects[0].record
        state.commit.intent_is_durable = True
        return effects

    patch.setattr(consolidation, "_intend", hasty)


def continuation_begins_anew(patch: pytest.MonkeyPatch) -> None:
    attempt = sampling._attempt

    def anew(shard: Any, live: Any, row: Any) -> Any:
        made = attempt(shard, live, row)
        return msgspec.structs.replace(made, position=0, prompt=made.prompt[:-1], max_new_tokens=made.sampling.max_new_tokens)

    patch.setattr(sampling, "_attempt", anew)


def text_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    receive = sampling.receive

    def talkative(shard: Any, live: Any, tokens: Any) -> bool:
        taken = receive(shard, live, tokens)
        live.durable = live.recorded.num_output
        delivery.say_more(shard, live)
        return taken

    patch.setattr(sampling, "receive", talkative)


def voided_micro_batches_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "void", lambda self, cell: 0)


def dispatch_gate_left_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planning, "gate_closed", lambda state: state.groups.begun["train"] >= state.settings.total_groups)


def nobody_watches_a_commit(patch: pytest.MonkeyPatch) -> None:
    """A member that died is not missed."""
    patch.setattr(Commit, "failure", lambda self, fleet: "")
    patch.setattr(consolidation, "_overdue", lambda state, now: "")


def lost_calls_not_continued(patch: pytest.MonkeyPatch) -> None:
    def forget(shard: Any, live: Any, kind: str, reason: str) -> None:
        shard.emit(CancelTimer(f"gone/{live.call}"))
        sampling.release_cell(shard, live, stop=False)

    patch.setattr(sampling, "failed", forget)


PLANTS: list[Plant] = [
    fence_not_compared,
    older_order_accepted,
    manifest_not_compared,
    consumed_forgotten_at_restart,
    apply_before_the_intent_is_durable,
    continuation_begins_anew,
    text_before_it_is_durable,
    voided_micro_batches_forgotten,
    dispatch_gate_left_open,
    nobody_watches_a_commit,
    lost_calls_not_continued,
]


@pytest.mark.timeout(900)  # a machine that is busy elsewhere
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(run_seed(seed).violation for seed in range(MOST_SEEDS)), f"{plant.__name__} lived through {MOST_SEEDS} seeds"
