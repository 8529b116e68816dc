"""From a decision to role changes: one cell at a time, core first in and last out, every step of DESIGN §4 in order."""

import statistics

from gyre_hpc.machines.base import Effect, Note
from gyre_hpc.machines.batch.fleet import Cell, Fleet, Move
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.protocol.identity import Role
from gyre_hpc.protocol.to_batch import GatewayReport
from gyre_hpc.scheduler.base import Decision


class Lending:
    """Carries role changes through; remembers how long they took."""

    def __init__(self, switch_s: float, pull_s: float) -> None:
        self.last_lend = -1e18
        self.last_reason = ""
        self._first = (switch_s, pull_s)
        self._seconds: dict[str, list[float]] = {"rollout_to_train": [], "train_to_rollout": [], "pull": []}
        self._seen: set[tuple[str, int]] = set()

    @property
    def switch_s(self) -> float:
        """Median of both directions together, as measured lately; the configured guess until then."""
        if not self._seconds["rollout_to_train"] or not self._seconds["train_to_rollout"]:
            return self._first[0]
        return statistics.median(self._seconds["rollout_to_train"][-9:]) + statistics.median(self._seconds["train_to_rollout"][-9:])

    @property
    def pull_s(self) -> float:
        return statistics.median(self._seconds["pull"][-9:]) if self._seconds["pull"] else self._first[1]

    def observe(self, cell: Cell) -> list[Effect]:
        """Take a finished switch out of the newest report, once."""
        switch = cell.report.switch if cell.report is not None else None
        if switch is None or (cell.name, switch.term) in self._seen:
            return []
        self._seen.add((cell.name, switch.term))
        steps = dict(switch.steps)
        pull = steps.pop("pull", None)
        if pull is not None:
            self._seconds["pull"].append(pull)
        self._seconds.setdefault(switch.direction, []).append(sum(steps.values()))
        return [Note("switch", {"cell": cell.name, "term": switch.term, "direction": switch.direction, "steps": dict(switch.steps)})]

    def follow(self, now: float, decision: Decision, fleet: Fleet, batch: OpenBatch, table: int) -> list[Effect]:
        """Begin at most one move towards `decision.want`. `table` is the number the next table will have."""
        if fleet.moving() is not None:
            return []
        training = fleet.training()
        if decision.want > len(training):
            cell = self._to_lend(fleet)
            if cell is None:
                return []
            # A cell that is in no table needs no acknowledgement: the next table may never differ.
            cell.move, cell.left_table, cell.lent_at = Move.leaving, table if cell.in_table else 0, now
            self.last_lend = now
            if batch.ledger.is_open():
                batch.joined.add(cell.name)
            return [Note("lend", {"cell": cell.name, "reason": decision.reason, "forced": decision.forced})]
        if decision.want < len(training):
            recalled = self._to_recall(training, fleet)
            recalled.move = Move.finishing
            return [Note("recall", {"cell": recalled.name, "reason": decision.reason})]
        return []

    def carry_on(
        self, fleet: Fleet, batch: OpenBatch, gateways: dict[str, GatewayReport], now: float, heard: dict[str, float], lease_s: float
    ) -> None:
        """Moves that wait: for the table's acknowledgement, or for the last leases."""
        cell = fleet.moving()
        if cell is None:
            return
        if cell.move is Move.leaving and _acknowledged(cell.left_table, gateways, now, heard, lease_s):
            cell.change_role(Role.train)
        elif cell.move is Move.finishing and not _working(cell, batch):
            cell.hand_in = bool(batch.ledger.accumulated(cell.name)) and cell is not fleet.core
            cell.change_role(Role.rollout)

    def _to_lend(self, fleet: Fleet) -> Cell | None:
        """The core if it serves, else the satellite with the least to move."""
        if fleet.core.is_serving:
            return fleet.core
        if fleet.core.role is not Role.train:
            return None
        serving = [cell for cell in fleet.satellites if cell.is_serving]
        return min(serving, key=lambda cell: (cell.report.live_requests if cell.report else 0, cell.name), default=None)

    def _to_recall(self, training: list[Cell], fleet: Fleet) -> Cell:
        """Last in, first out; the core after all satellites."""
        return max(training, key=lambda cell: (cell is not fleet.core, cell.lent_at))


def _acknowledged(table: int, gateways: dict[str, GatewayReport], now: float, heard: dict[str, float], lease_s: float) -> bool:
    """Every gateway has the table, or its lease on an older one has run out."""
    return all(report.table >= table or now - heard[name] > lease_s for name, report in gateways.items())


def _working(cell: Cell, batch: OpenBatch) -> bool:
    return bool(batch.ledger.leased(cell.name))
