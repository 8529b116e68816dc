"""What the batch machine is told once. Numbers that follow from others are properties."""

from dataclasses import dataclass, field

from gyre_hpc.config.schema import SchedulerConfig
from gyre_hpc.machines.batch.satellites import SatellitePace

BEFORE_FIRST_STEP = -1
"""Step of the random weights a warm start begins from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSettings:
    """One run's plan and the batch machine's own deadlines (seconds)."""

    cells: tuple[str, ...]
    gateways: tuple[str, ...]
    runners: tuple[str, ...]
    core: str
    controller_url: str
    """Base URL under which cells fetch micro-batches."""
    attempt: int
    incarnation: int
    """Of the controller: document numbers of a later one are larger."""
    updates: int
    groups_per_batch: int
    group_size: int
    scheduler: SchedulerConfig
    eval_tasks: int
    eval_before: bool = True
    eval_after: bool = True
    warm_executions: int = 0
    warm_epochs: int = 0
    warm_process: str = "scripted-0"
    soft_deadline_s: float = 60.0
    hard_deadline_s: float = 75.0
    table_lease_s: float = 5.0
    resend_s: float = 1.0
    tick_s: float = 0.1
    quiet_tick_s: float = 1.0
    """Once ticks bring nothing any more each doubles the time to the next one, up to this. What somebody says is looked at at once."""
    status_s: float = 1.0
    silence_s: float = 10.0
    """A cell that has not reported for this long is lost."""
    start_deadline_s: float = 120.0
    switch_deadline_s: float = 150.0
    """A role change that takes longer than this hangs: the cell is started again."""
    lease_deadline_s: float = 150.0
    """A cell that holds leases and has accumulated none of them for this long hangs."""
    commit_deadline_s: float = 30.0
    hand_in_patience_s: float = 5.0
    """A sum the core does not show this long after its giver went back to rollout is lost."""
    progress_deadline_s: float = 300.0
    """Without any progress for this long the run ends with the reason."""
    broken_deadline_s: float = 10.0
    """A cell that has said for this long that its engine or a rank does not work is started again."""
    stale_patience_s: float = 5.0
    """A cell that serves weights beyond the staleness bound for this long is an alarm."""
    max_failed_starts: int = 3
    max_restarts_of_execution: int = 2
    replays: bool = True
    """Executions whose process is gone go on from what was recorded."""
    max_lives: int = 5
    prefetch: int = 2
    """Micro-batches leased to one cell at once."""
    train_tokens_per_s: float = 8000.0
    """Until measured."""
    kv_budget_s: float = 0.0
    """Longest that a cell on its way to training spends on giving its KV away; 0: KV does not travel."""
    switch_s: float = 0.3
    pull_s: float = 0.05
    kv_tokens_per_cell: int = 0
    cell_capacity: int = 64
    """Calls that a cell's engine computes at once."""
    checkpoint_before_publish: bool = True
    checkpoints_kept: int = 2
    """The newest; the run may go back to any of them."""
    pairs: tuple[tuple[str, str], ...] = ()
    """(cell that prefills, cell that decodes) of those that serve together only."""
    satellites: int = 0
    """Satellite jobs that the run asks for while there is work for them."""
    satellite_pace: SatellitePace = field(default_factory=SatellitePace)
    malformed_window: int = 0
    """So many tool calls in a row that could not be parsed end the run; 0 = never."""
    most_empty_batches: int = 3
    """So many batches in a row without a token to train on end the run."""
    fruitless_window: int = 0
    """So many executions in a row without a token to train on end the run; 0 = never."""

    @property
    def total_groups(self) -> int:
        """Groups the whole run consumes; dispatch never goes beyond."""
        return self.updates * self.groups_per_batch

    @property
    def max_failed_starts_of_core(self) -> int:
        """It cannot be set aside: after so many in a row the run is over."""
        return 2 * self.max_failed_starts

    @property
    def max_stuck_starts(self) -> int:
        """In a row, of one cell, while one update is to be made."""
        return 2 * self.max_failed_starts

    @property
    def number_base(self) -> int:
        """Document numbers of this controller start here."""
        return self.incarnation * 1_000_000_000
