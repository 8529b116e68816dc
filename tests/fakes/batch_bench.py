"""A batch machine by itself: built from records, told what a test wants to tell it."""

from dataclasses import replace
from typing import Any

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.base import Effect, Received, Restarted, TimerFired
from gyre_hpc.machines.batch import BatchMachine, BatchSettings
from gyre_hpc.machines.batch.awake import Awake
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.machine import TICK
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.records import (
    AttemptBegun,
    ExecutionEnded,
    GroupBegun,
    Published,
)
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.to_batch import CellReport, CellState, Ended, GatewayReport, ScoreState

CELLS = ("cell-0", "cell-1", "cell-2")
FIRST = Version(0, 0)
GROUPS = tuple(GroupId("train", slot, group) for slot in range(2) for group in range(2))


def machine(*records: Any, incarnation: int = 2, attempt: int = 1, **changed: Any) -> tuple[BatchMachine, list[Effect]]:
    settings = BatchSettings(
        cells=CELLS, gateways=("gateway-0",), runners=("runner-0",), core="cell-0", controller_url="c", attempt=attempt,
        incarnation=incarnation, updates=3, groups_per_batch=2, group_size=1, scheduler=SchedulerConfig(), eval_tasks=0, eval_before=False,
        eval_after=False, switch_deadline_s=20.0, lease_deadline_s=20.0,
    )  # fmt: skip
    settings = replace(settings, **changed)
    made = BatchMachine(settings, Membership(Register("controller", incarnation, "c", 1)), "secret")
    return made, made.handle(0.0, Restarted(tuple(records)))


def report(cell: str, seq: int, *, state: CellState = CellState.rollout, incarnation: int = 1, **facts: Any) -> CellReport:
    known: dict[str, Any] = {"snapshots": (FIRST,), "version": FIRST, "snapshot_url": f"store-{cell}", "engine_url": cell, "term": 0}
    return CellReport(cell=cell, incarnation=incarnation, seq=seq, order_seq=0, state=state, **(known | facts))


def tell(made: BatchMachine, now: float, message: Any, sender: str = "") -> list[Effect]:
    return made.handle(now, Received(sender, message))


def ended(execution: str, state: ScoreState = ScoreState.scored) -> ExecutionEnded:
    return ExecutionEnded(Ended(execution, state, 1.0 if state is ScoreState.scored else None))


HISTORY = (AttemptBegun(1), Published(FIRST, -1), *(GroupBegun(id) for id in GROUPS))
DONE = tuple(ended(f"{id}-0") for id in GROUPS)


def training() -> BatchMachine:
    """A batch of two groups, three cells awake as trainers."""
    made, _ = machine(*HISTORY, *DONE)
    state = made.state
    state.phase = Phase.training
    for cell in state.fleet.cells.values():
        cell.incarnation, cell.role, cell.move = 1, Role.train, Move.none
        seen = report(cell.name, 1, state=CellState.train, term=cell.term, update=0, fence=cell.fence)
        cell.report, cell.heard_at = seen, 0.0
    state.batch = OpenBatch(update=0)
    state.batch.ledger.add("0:0", 10, 10)
    state.batch.ledger.add("0:1", 10, 10)
    return made


def serving(*records: Any, **changed: Any) -> BatchMachine:
    """Three cells in the table, which the gateway knows; the executions of HISTORY live."""
    made, _ = machine(*HISTORY, *records, **changed)
    made.state.phase = Phase.training
    tell(made, 0.1, Directory(1, tuple(Entry(name, 1, name) for name in (*CELLS, "gateway-0"))))
    for name in CELLS:
        tell(made, 0.1, report(name, 1, term=made.state.settings.number_base))
    acknowledge(made, 0.1)
    return made


def acknowledge(made: BatchMachine, now: float, seq: int = 1) -> list[Effect]:
    """The gateway has the newest table."""
    return tell(made, now, GatewayReport("gateway-0", 1, seq, made.state.table_number, 0), "gateway-0")


def tick(made: BatchMachine, now: float) -> list[Effect]:
    """One that is due now, whatever came before."""
    made.awake = Awake(TICK)
    return made.handle(now, TimerFired(TICK))
