"""Everything a cell machine knows; the functions of this room read it and change it."""

from dataclasses import dataclass, field

from gyre_hpc.machines.cell.actions import AppliedRecord, Figures, SaveCheckpoint
from gyre_hpc.machines.cell.body import Body
from gyre_hpc.machines.cell.commit import Commit
from gyre_hpc.machines.cell.giving import Giving
from gyre_hpc.machines.cell.settings import CellSettings
from gyre_hpc.machines.cell.switch import Done
from gyre_hpc.machines.cell.timing import Timing
from gyre_hpc.machines.cell.training import Fetched, Sum
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import SwitchTiming
from gyre_hpc.protocol.to_cell import Order


@dataclass(kw_only=True, slots=True)
class State:
    settings: CellSettings
    order: Order | None = None
    """Newest one."""
    body: Body = field(default_factory=Body)
    total: Sum = field(default_factory=Sum)
    fetched: Fetched = field(default_factory=Fetched)
    commit: Commit | None = None
    giving: Giving = field(default_factory=Giving)
    done: Done = field(default_factory=Done)
    pending: list[SaveCheckpoint | AppliedRecord] = field(default_factory=list)
    """What is left of an update or a warm start that the trainer has made: save, persist. Nothing else begins before it is empty."""
    unsaved: SaveCheckpoint | None = None
    """Of the newest update, if checkpoint_every passed it over: made when the run is about to be stopped."""
    saved: Version | None = None
    """As CellReport.saved."""
    save_s: float = 0.0
    """As CellReport.save_s."""
    fitting: str = ""
    """Id of the warm start whose checkpoint is being saved; it counts as fitted after that."""
    fit_progress: float = 0.0
    hand_in_since: float | None = None
    """First try of the hand-in that still fails, monotonic seconds."""
    figures: Figures = field(default_factory=Figures)
    timing: Timing | None = None
    """Of the role change being made."""
    switch: SwitchTiming | None = None
    """Of the last one made."""
    waiting: str = ""
