"""What the batch machine knows of its cells: newest report, desired role, term, fence; who is lost or set aside."""

import enum

from gyre_hpc.machines.batch.documents import Document
from gyre_hpc.machines.batch.settings import BatchSettings
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.supervision import Directory, Entry
from gyre_hpc.protocol.to_batch import CellReport, CellState, Moved
from gyre_hpc.protocol.to_cell import KvOrder

KIND = "cell-"
_NOT_WORKING = (CellState.starting, CellState.lost)
Unit = tuple["Cell", ...]
"""Cells that serve together: one, or a pair. In the order in which they leave rollout: the one that takes calls first."""


class Move(enum.Enum):
    """Where a role change stands. A cell with a move is in transition; only one cell is at a time.

    none -> leaving (table without it is being acknowledged) -> ordered -> none            rollout to train
    none -> finishing (no new leases; its last ones end) -> ordered (hand-in, switch) -> none   train to rollout
    """

    none = "none"
    leaving = "leaving"
    finishing = "finishing"
    ordered = "ordered"


class Cell:
    """One cell as the batch machine sees it."""

    def __init__(self, name: str, base: int) -> None:
        self.name = name
        self.partner: Cell | None = None
        """The one it serves together with; neither serves alone."""
        self.prefills = False
        """It computes prompts for its partner, and takes no calls."""
        self.order = Document(name, base)
        self.sources: tuple[str, ...] = ()  # cells from which it was last told to pull weights
        self.incarnation = 0
        self.report: CellReport | None = None
        self.heard_at = 0.0
        self.role = Role.rollout
        self.term = base
        self.fence = base
        self.move = Move.none
        self.left_table = 0
        self.in_table = False
        self.lent_at = -1e18
        self.leave_s = 0.0
        """How long its last departure from the table took to reach every gateway."""
        self.kv: KvOrder | None = None
        """What it may do with its KV in this term; frozen when the term begins."""
        self.moved: tuple[Moved, ...] = ()
        """What it last said of KV that went elsewhere."""
        self.hand_in = False
        """It left training with a sum that the core does not have yet."""
        self.moving_since: float | None = None
        self.working_since: float | None = None
        """When it last accumulated, or was given its first lease; None while it holds none."""
        self.broken_since: float | None = None
        """Since when it says that it does not work; None while it does not say so."""
        self.stale_since: float | None = None
        """Since when it serves weights beyond the staleness bound; None while it does not."""
        self.stale_told = False
        self.settled_at = -1e18
        """When its last role change was over."""
        self.lost = ""
        """Why it is not there now; empty when it is."""
        self.aside = ""
        self.is_held = False
        """A person looks at it; it comes back when that is over."""
        self.failed_starts = 0  # in a row, of its own
        self.stuck = (-1, 0)
        """(update, starts in a row that ended because it got nowhere while that update was to be made)."""
        self.is_own_start = True
        """This controller saw the incarnation begin or live: when it ends before it ever worked, that was a failed start."""
        self.is_joiner = False
        """Nobody planned it: a node brought it."""
        self.has_registered = False
        """The directory showed an address of it."""
        self.asked_at = -1e18
        self.started_at = 0.0

    @property
    def is_unborn(self) -> bool:
        """It joins a run that is under way, and serves nothing yet."""
        return self.is_joiner and not self.has_registered and self.report is None

    @property
    def is_usable(self) -> bool:
        """Has weights and can take orders."""
        report = self.report
        return report is not None and not self.lost and not self.aside and report.state not in _NOT_WORKING

    @property
    def is_serving(self) -> bool:
        """Works for calls."""
        report = self.report
        return (
            self.is_usable
            and report is not None
            and self.role is Role.rollout
            and self.move is not Move.leaving
            and report.state is CellState.rollout
            and report.term == self.term
            and report.version is not None
        )

    @property
    def takes_calls(self) -> bool:
        """Belongs into the routing table. A prompt of other weights than those that decode would be refused."""
        if not self.is_serving or self.prefills or self.partner is None:
            return self.is_serving and not self.prefills
        ours, theirs = self.report, self.partner.report
        if ours is None or theirs is None or theirs.broken:
            # One that says that it is broken is started again later; no call of ours would get anywhere meanwhile.
            return False
        return self.partner.is_serving and ours.version == theirs.version

    @property
    def is_reachable(self) -> bool:
        """In the table, or still open under a term of an older one that a gateway may go by."""
        report = self.report
        if report is None or self.lost or self.prefills:
            return False
        # It left the table also when its partner alone does not serve.
        left = self.move is Move.leaving or report.term != self.term or self.partner is not None
        return self.in_table or (report.state is CellState.rollout and left)

    @property
    def is_lent(self) -> bool:
        """Ordered to train and there, awake or not yet."""
        return (self.role is Role.train or self.move is Move.leaving) and self.is_usable

    @property
    def is_training(self) -> bool:
        """Awake as a trainer under the newest role order."""
        report = self.report
        return (
            self.is_usable
            and report is not None
            and self.role is Role.train
            and report.state is CellState.train
            and report.term == self.term
        )

    def has(self, version: Version) -> bool:
        return self.report is not None and version in self.report.snapshots

    def change_role(self, role: Role, kv: KvOrder | None = None) -> None:
        """A new term begins. A cell that trains again goes on with the sum it has."""
        self.role, self.kv = role, kv
        self.hand_in = self.hand_in and role is Role.rollout
        self.term += 1
        self.move = Move.ordered


class Fleet:
    """All cells of the run."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self.cells = {name: Cell(name, settings.number_base) for name in settings.cells}
        self._has_directory = False
        self.core_name = settings.core
        self.core = self.cells[settings.core]
        self.satellites = [cell for cell in self.cells.values() if cell is not self.core]
        self.units = self._pair_up(settings.pairs)

    def _pair_up(self, pairs: tuple[tuple[str, str], ...]) -> tuple[Unit, ...]:
        for name, other in pairs:
            prefilling, decoding = self.cells[name], self.cells[other]
            prefilling.partner, decoding.partner, prefilling.prefills = decoding, prefilling, True
        alone = [(cell,) for cell in self.cells.values() if cell.partner is None]
        return (*alone, *((cell, cell.partner) for cell in self.cells.values() if cell.partner is not None and not cell.prefills))

    def usable(self) -> list[Cell]:
        return [cell for cell in self.cells.values() if cell.is_usable]

    def enter_table(self, newest: Version | None) -> list[Cell]:
        """Cells that take calls now. One that was away comes in only with the newest version; one that is in stays in
        while it goes over to a newer one. So the oldest version in the table never falls."""
        entered = []
        for cell in self.cells.values():
            report = cell.report
            cell.in_table = cell.takes_calls and (cell.in_table or (report is not None and report.version == newest))
            if cell.in_table:
                entered.append(cell)
        return entered

    def is_known(self) -> bool:
        """Every cell that is not lost has said what it serves to this controller. Who joined is known by the directory alone."""
        return self._has_directory and all(
            cell.report is not None or bool(cell.lost or cell.aside) for cell in self.cells.values() if not cell.is_unborn
        )

    def oldest_served_step(self) -> int | None:
        """Oldest step a call can meet; None when no cell takes calls."""
        versions = [cell.report.version for cell in self.cells.values() if cell.report is not None and cell.is_reachable]
        return min((version.step for version in versions if version is not None), default=None)

    def training(self) -> list[Cell]:
        """Ordered to train and there, awake or not yet."""
        return [cell for cell in self.cells.values() if cell.is_lent]

    def working_units(self) -> list[Unit]:
        """Those that can serve or train: whole ones, and the core's as soon as the core is there."""
        return [unit for unit in self.units if all(cell.is_usable for cell in unit) or (self.core in unit and self.core.is_usable)]

    def training_units(self) -> list[Unit]:
        """Those with a cell that `training` names."""
        return [unit for unit in self.units if any(cell.is_lent for cell in unit)]

    def serving_satellites(self) -> list[Unit]:
        """Those without the core of which every cell serves."""
        return [unit for unit in self.units if self.core not in unit and all(cell.is_serving for cell in unit)]

    def moving(self) -> Cell | None:
        return next((cell for cell in self.cells.values() if cell.move is not Move.none and cell.is_usable), None)

    def take_directory(self, now: float, directory: Directory) -> list[tuple[Cell, str]]:
        """Learn of new incarnations; return cells whose incarnation ended just now, and why. Of those some may be there again."""
        lost = []
        self._has_directory = True
        for entry in directory.entries:
            cell = self.cells.get(entry.process) or self._join(entry)
            if cell is None or entry.incarnation < cell.incarnation:
                continue
            cell.has_registered = cell.has_registered or bool(entry.url)
            cell.is_held = entry.held
            if entry.aside and not cell.aside:
                cell.aside = entry.lost or "set aside"
                if cell.incarnation and not cell.lost:
                    cell.lost = cell.aside
                    lost.append((cell, cell.aside))
            if entry.incarnation > cell.incarnation:
                if cell.incarnation and not cell.lost:
                    lost.append((cell, "replaced by a newer start"))
                cell.is_own_start = bool(cell.incarnation) or not entry.lost
                cell.incarnation, cell.report, cell.started_at, cell.lost = entry.incarnation, None, now, ""
            if entry.lost and not cell.lost and not cell.aside:
                cell.lost = entry.lost
                lost.append((cell, entry.lost))
        return lost

    def _join(self, entry: Entry) -> Cell | None:
        """A cell that nobody planned: a satellite that serves by itself. It may go at any time, and is then set aside."""
        if entry.aside or not entry.process.startswith(KIND):
            return None
        cell = self.cells[entry.process] = Cell(entry.process, self._settings.number_base)
        cell.is_joiner = True
        self.satellites.append(cell)
        self.units = (*self.units, (cell,))
        return cell

    def forget(self, cell: Cell) -> None:
        """It is lost and holds nothing. Numbers of cells are not used again."""
        del self.cells[cell.name]
        self.satellites.remove(cell)
        self.units = tuple(unit for unit in self.units if cell not in unit)

    def take_report(self, now: float, report: CellReport) -> bool:
        """False for a report that is not newer than what is known."""
        cell = self.cells.get(report.cell)
        if cell is None or report.incarnation < cell.incarnation or cell.aside:
            return False
        known = cell.report
        if known is not None and known.incarnation == report.incarnation and report.seq <= known.seq:
            return False
        if report.incarnation == cell.incarnation and cell.lost:
            return False
        if known is None or known.incarnation != report.incarnation:
            self._adopt(cell, report, now)
        cell.report, cell.heard_at = report, now
        if cell.move is Move.ordered and report.term == cell.term and report.state.value == cell.role.value:
            cell.move, cell.settled_at = Move.none, now
        return True

    def _adopt(self, cell: Cell, report: CellReport, now: float) -> None:
        """First word of an incarnation: its role and numbers are the truth, whoever ordered them."""
        cell.incarnation, cell.lost, cell.started_at = report.incarnation, "", now
        cell.term = max(cell.term, report.term)
        cell.fence = max(cell.fence, report.fence) + 1
        in_training = report.state in (CellState.train, CellState.handing_in)
        role = Role.train if in_training else Role.rollout
        if report.term != cell.term or role is not cell.role or report.state is CellState.starting:
            cell.change_role(role)
        cell.move = Move.none
        cell.hand_in = False
