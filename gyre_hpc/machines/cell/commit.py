"""One cell's part in the commit of one generation (DESIGN §7 a-d).

frozen -> hosted (core) -> joined -> reduced, any -> failed; a newer generation begins at frozen again. Frozen means: no
micro-batch is in progress and none is begun, so the manifest stands.
"""

from dataclasses import dataclass

from gyre_hpc.machines.cell.actions import Action, HostGroup, Reduce
from gyre_hpc.machines.cell.training import Sum
from gyre_hpc.protocol.to_batch import CommitPhase, CommitReport, HandIn
from gyre_hpc.protocol.to_cell import CommitOrder, Order

LOCAL = "local"
"""Address reported for a commit of one member: it needs no group."""


@dataclass(kw_only=True, slots=True)
class Commit:
    generation: int
    phase: CommitPhase = CommitPhase.frozen
    address: str | None = None
    accepted: tuple[tuple[str, int], ...] | None = None
    """Hand-ins that are in the scratch; fixed when the reduce begins."""
    reason: str = ""

    def fail(self, reason: str) -> None:
        self.phase, self.reason = CommitPhase.failed, reason


def missing(order: Order, held: tuple[HandIn, ...]) -> tuple[tuple[str, int], ...]:
    """Accepted hand-ins that are not here."""
    here = {(hand_in.cell, hand_in.fence) for hand_in in held}
    return tuple(pair for pair in order.accepted if pair not in here)


def next_commit_step(
    commit: Commit, order: Order, asked: CommitOrder, cell: str, held: tuple[HandIn, ...], deadline_s: float
) -> Action | None:
    """What to do next for `asked`, or None to wait. A core alone hosts without an action."""
    core = asked.members[0] == cell
    if core and commit.phase is CommitPhase.frozen:
        if len(asked.members) > 1:
            return HostGroup(generation=asked.generation, nonce=asked.nonce, deadline_s=deadline_s)
        commit.phase, commit.address = CommitPhase.hosted, LOCAL
    may_reduce = asked.reduce and asked.address is not None and commit.phase in (CommitPhase.frozen, CommitPhase.hosted)
    if not may_reduce or (core and missing(order, held)):
        return None
    assert asked.address is not None
    return Reduce(
        generation=asked.generation,
        address=asked.address,
        nonce=asked.nonce,
        rank=asked.members.index(cell),
        world=len(asked.members),
        update=order.update,
        accepted=tuple(sorted(order.accepted)) if core else (),
        deadline_s=deadline_s,
    )


def commit_report(commit: Commit, order: Order, total: Sum, held: tuple[HandIn, ...]) -> CommitReport:
    """The manifest: own ids, and on the core those of accepted hand-ins that are here."""
    accepted = set(order.accepted if commit.accepted is None else commit.accepted) if order.is_core else set()
    taken = sorted((hand_in for hand_in in held if (hand_in.cell, hand_in.fence) in accepted), key=lambda h: (h.cell, h.fence))
    return CommitReport(
        generation=commit.generation,
        phase=commit.phase,
        address=commit.address,
        manifest=total.ids + tuple(id for hand_in in taken for id in hand_in.ids),
        num_targets=sum(facts.num_targets for facts in total.facts),
        reason=commit.reason,
    )
