"""From a decision to role changes: one cell at a time, core first in and last out, every step of DESIGN §4 in order."""

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.fleet import Cell, Fleet, Move, Unit
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import GatewayReport
from gyre_hpc.protocol.to_cell import KvOrder
from gyre_hpc.scheduler.base import Decision

_NEWEST = 9
"""Switches of each direction that the median is of."""


class Lending:
    """Carries role changes through; remembers how long they took."""

    def __init__(self, switch_s: float, pull_s: float) -> None:
        self.last_lend = -1e18
        self.last_reason = ""
        self.switch_s = switch_s
        """Median of both directions together, as measured lately; the configured guess until then."""
        self.pull_s = pull_s
        """As `switch_s`."""
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_NEWEST))
        self._seen: dict[str, int] = {}
        """Cell -> term of its newest switch taken: terms only grow."""

    def observe(self, cell: Cell) -> list[Effect]:
        """Take a finished switch out of the newest report, once."""
        switch = cell.report.switch if cell.report is not None else None
        if switch is None or switch.term <= self._seen.get(cell.name, -1):
            return []
        self._seen[cell.name] = switch.term
        steps = dict(switch.steps)
        pull = steps.pop("pull", None)
        if pull is not None:
            self._seconds["pull"].append(pull)
        self._seconds[switch.direction].append(sum(steps.values()))
        self._summarize()
        leaves = {"leave_table": cell.leave_s} if switch.direction == "rollout_to_train" and switch.term == cell.term else {}
        return [Note("switch", {"cell": cell.name, "term": switch.term, "direction": switch.direction, "steps": leaves | switch.steps})]

    def _summarize(self) -> None:
        there, back, pulls = (self._seconds[name] for name in ("rollout_to_train", "train_to_rollout", "pull"))
        if there and back:
            self.switch_s = statistics.median(there) + statistics.median(back)
        if pulls:
            self.pull_s = statistics.median(pulls)

    def follow(self, now: float, decision: Decision, fleet: Fleet, batch: OpenBatch, table: int) -> list[Effect]:
        """Begin at most one move towards `decision.want` units. `table` is the number the next table will have."""
        if fleet.moving() is not None:
            return []
        training = fleet.training_units()
        if decision.want >= len(training):
            cell = _left_behind(training) if fleet.core.is_usable else None
            if cell is None and decision.want > len(training):
                cell = self._to_lend(fleet)
            if cell is None:
                return []
            # A cell that is in no table needs no acknowledgement: the next table may never differ.
            cell.move, cell.left_table, cell.lent_at = Move.leaving, table if cell.in_table else 0, now
            self.last_lend = now
            if batch.ledger.is_open():
                batch.joined.add(cell.name)
            return [Note("lend", {"cell": cell.name, "reason": decision.reason, "forced": decision.forced})]
        recalled = self._to_recall(training, fleet)
        recalled.move = Move.finishing
        return [Note("recall", {"cell": recalled.name, "reason": decision.reason})]

    def carry_on(
        self, now: float, fleet: Fleet, batch: OpenBatch, is_known: Callable[[int], bool], kv_of: Callable[[Cell], KvOrder | None]
    ) -> None:
        """Moves that wait: for the gateways to know a table (`is_known(number)`), or for the last leases. `kv_of`: what a cell
        may do with its KV when it leaves."""
        cell = fleet.moving()
        if cell is None:
            return
        if cell.move is Move.leaving and is_known(cell.left_table):
            cell.leave_s = now - cell.lent_at
            cell.change_role(Role.train, kv_of(cell))
        elif cell.move is Move.finishing and not _working(cell, batch):
            cell.hand_in = bool(batch.ledger.accumulated(cell.name)) and cell is not fleet.core
            cell.change_role(Role.rollout)

    def _to_lend(self, fleet: Fleet) -> Cell | None:
        """Of the core's unit if the core serves, else of the satellites with the least to move: whoever leaves first of it."""
        if fleet.core.is_serving:
            return _left_behind(unit for unit in fleet.units if fleet.core in unit)
        if fleet.core.role is not Role.train:
            return None
        unit = min(fleet.serving_satellites(), key=lambda unit: to_move(unit[0]), default=None)
        return unit[0] if unit is not None else None

    def _to_recall(self, training: list[Unit], fleet: Fleet) -> Cell:
        """Of the core's unit after all others, of those the one that is on its way, then last in, first out; the core as the last of all."""

        def rank(unit: Unit) -> tuple[bool, bool, float]:
            return fleet.core not in unit, _left_behind((unit,)) is not None, max(cell.lent_at for cell in unit if cell.is_lent)

        unit = max(training, key=rank)
        back = [cell for cell in reversed(unit) if cell.is_lent]
        return next((cell for cell in back if cell is not fleet.core), fleet.core)


def _left_behind(units: Iterable[Unit]) -> Cell | None:
    """Whoever is the next to leave rollout when all of these units do."""
    return next((cell for unit in units for cell in unit if cell.is_serving), None)


def to_move(cell: Cell) -> tuple[int, int, str]:
    """Calls that would go on elsewhere, then KV that would go with them: cells are of one size, so the one with the most room has least."""
    report = cell.report
    return (report.live_requests, -report.kv.free_tokens, cell.name) if report is not None else (0, 0, cell.name)


def is_acknowledged(
    table: int, shards: Iterable[str], gateways: Mapping[str, GatewayReport], now: float, heard: Mapping[str, float], lease_s: float
) -> bool:
    """Every gateway has the table, or its lease on an older one has run out (DESIGN §4, step 1). One that this controller has not
    heard of yet may go by a table of the controller before: `heard` says since when it might have."""
    return all((name in gateways and gateways[name].table >= table) or now - heard[name] > lease_s for name in shards)


def _working(cell: Cell, batch: OpenBatch) -> bool:
    return bool(batch.ledger.leased(cell.name))
