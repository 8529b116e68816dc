"""Everything the batch machine knows, in one value that its parts share. Parts are functions State -> effects."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.base import Effect, Note, Persist
from gyre_hpc.machines.batch.actions import Checkpoint, PrepareGroup
from gyre_hpc.machines.batch.commit import Commit
from gyre_hpc.machines.batch.documents import Document
from gyre_hpc.machines.batch.fleet import Cell, Fleet
from gyre_hpc.machines.batch.fruit import Fruitless
from gyre_hpc.machines.batch.groups import Groups
from gyre_hpc.machines.batch.lending import Lending
from gyre_hpc.machines.batch.open_batch import OpenBatch
from gyre_hpc.machines.batch.records import CommitIntended
from gyre_hpc.machines.batch.satellites import Satellites
from gyre_hpc.machines.batch.settings import BatchSettings
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import GatewayReport, RunnerReport
from gyre_hpc.scheduler.base import Decision

Then = Callable[["State", float], list[Effect]]


@dataclass(kw_only=True)
class State:
    """One run, as the controller sees it."""

    settings: BatchSettings
    secret: str
    fleet: Fleet
    groups: Groups
    batch: OpenBatch
    lending: Lending
    satellites: Satellites
    phase: Phase = Phase.starting
    version: Version | None = None
    """Newest published version; None before the first."""
    loading: Checkpoint | None = None
    """Checkpoint the core is to load as `target`."""
    target: Version | None = None
    """What the core is being brought to (init, load, fit); becomes `version` when it has it."""
    lineage: int = 0
    """Newest one begun."""
    looked_for_checkpoint: bool = False
    fit_urls: tuple[str, ...] = ()
    commit: Commit | None = None
    generation: int = 0
    commit_failures: int = 0
    apply_failures: int = 0
    """In a row, without an update between them."""
    intents: dict[int, CommitIntended] = field(default_factory=dict)
    """Newest intent per update: what an applied update consumed."""
    saved_steps: tuple[int, ...] = ()
    """Of the newest checkpoints of this lineage, as the core told of them, ascending."""
    gateways: dict[str, GatewayReport] = field(default_factory=dict)
    gateway_heard: dict[str, float] = field(default_factory=dict)
    gateway_seen: dict[str, int] = field(default_factory=dict)
    """Newest fact taken, per shard; acknowledged once durable."""
    gateway_acked: dict[str, int] = field(default_factory=dict)
    runners: dict[str, RunnerReport] = field(default_factory=dict)
    restarting: set[str] = field(default_factory=set)
    """Executions that will not run (again): another try takes their place once that is durable."""
    spared_s: dict[str, float] = field(default_factory=dict)
    """Execution that was taken up -> seconds that its recorded calls took, and take no more."""
    assignments: dict[str, str] = field(default_factory=dict)
    """Execution -> runner."""
    unplaced: set[str] = field(default_factory=set)
    """Executions that the controller before this one may have given to a runner that was not heard yet."""
    lost_runners: dict[str, str] = field(default_factory=dict)
    """Runner -> why it is gone for the attempt."""
    recently_ended: dict[str, float] = field(default_factory=dict)
    """Execution -> when; gateways are told to close them."""
    moved: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Call -> (cell its KV went to, when); gateways are told."""
    tables: dict[str, Document] = field(default_factory=dict)
    assignment_documents: dict[str, Document] = field(default_factory=dict)
    table_number: int = 0
    table_rows: Any = None
    urls: dict[str, str] = field(default_factory=dict)
    """Process -> URL, from the directory."""
    pending: dict[str, tuple[Any, Then]] = field(default_factory=dict)
    """Persist key -> (record, what follows once it is durable)."""
    unsaved: set[str] = field(default_factory=set)
    """Persist keys that failed for want of storage; tried again at each tick."""
    storage_full: str = ""
    next_key: int = 0
    running_actions: set[str] = field(default_factory=set)
    resting: set[str] = field(default_factory=set)
    """Those of them that failed: none is begun again before the next tick, as what was in their way lasts a while."""
    preparing: PrepareGroup | None = None
    """What the running preparation was asked for."""
    decision: Decision | None = None
    progress_at: float = 0.0
    """When anything last moved on."""
    status_at: float = -1e18
    tool_calls_parsed: int = 0
    """Of all shards, when the newest parsed one was seen."""
    malformed_before: int = 0
    """Tool calls that could not be parsed, seen by then."""
    fruitless: Fruitless = field(default_factory=Fruitless)
    empty_batches: int = 0
    """In a row, without an update between them."""
    stacks_ordered_at: float = -1e18
    is_saving: bool = False
    """The run is about to be stopped: what no checkpoint holds is saved first."""
    save_waits: str = ""
    """What the stop was told to wait for; empty: nothing."""
    save_until: float = 0.0
    """And until when."""
    finished: bool = False
    exit_code: int = 0
    reason: str = ""
    """Why the run is over."""
    is_written: bool = False
    """The last status stands; the supervisor may end us."""
    totals: dict[str, float] = field(default_factory=dict)
    pass_rates: dict[int, float] = field(default_factory=dict)
    """Evaluation slot -> pass rate."""
    train_pass_rate: float | None = None
    """Moving average over training executions."""
    alarms: list[str] = field(default_factory=list)
    """Newest last; the last few."""
    activities: dict[str, str] = field(default_factory=dict)
    """Cell -> newest activity noted."""

    @property
    def is_settled(self) -> bool:
        """The core is not being brought to other weights."""
        return self.target is None and self.loading is None

    @property
    def is_without_runners(self) -> bool:
        """All are gone for the attempt: nobody can run anything any more."""
        return bool(self.lost_runners) and not self.runners and all(name in self.lost_runners for name in self.settings.runners)

    @property
    def update(self) -> int:
        """u: step of the current weights."""
        return self.batch.update

    def forget_intents_from(self, step: int) -> None:
        """Another lineage begins at `step`. A core thought lost may still have made what was intended: that is no part of it."""
        self.intents = {update: intent for update, intent in self.intents.items() if update < step}

    def add(self, name: str, amount: float = 1) -> None:
        self.totals[name] = self.totals.get(name, 0) + amount

    def moved_on(self, now: float) -> None:
        self.progress_at = now


def persist(state: State, record: Any, then: Then) -> list[Effect]:
    """Make `record` durable; `then` runs once it is."""
    state.next_key += 1
    key = f"record:{state.next_key}"
    state.pending[key] = (record, then)
    if state.unsaved:
        # Behind a record that could not be written: tried again with it, so that their order holds.
        state.unsaved.add(key)
        return []
    return [Persist(key, record)]


def void(state: State, cell: Cell, reason: str) -> list[Effect]:
    """All that `cell` holds is done again, by anybody; it begins at zero under its new fence."""
    is_core = cell is state.fleet.core
    num = state.batch.void_core(cell.name) if is_core else state.batch.void(cell.name)
    cell.fence += 1
    cell.hand_in = False
    return [Note("voided", {"cell": cell.name, "micro_batches": num, "reason": reason})]


def new_batch(update: int) -> OpenBatch:
    return OpenBatch(update=update)
