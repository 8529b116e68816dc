"""Facts in, one decision out. Aggregates only: the batch machine keeps them at O(1) per event."""

import msgspec


class EngineCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Measured decode throughput of one cell against calls running on it."""

    points: tuple[tuple[float, float], ...] = ()
    """(concurrency, tokens/s of the whole cell), ascending; empty: use the half-saturation model."""
    half: float = 8.0
    """Concurrency of half saturation for s = 1 + m/half, when there are no points."""

    def throughput(self, concurrency: float) -> float:
        """tokens/s of one cell (arbitrary unit without points); 0 at 0, never falling."""
        if concurrency <= 0:
            return 0.0
        if not self.points:
            return concurrency / (1.0 + concurrency / self.half)
        previous = (0.0, 0.0)
        for point in self.points:
            if concurrency <= point[0]:
                (x0, y0), (x1, y1) = previous, point
                return max(y0, y0 + (y1 - y0) * (concurrency - x0) / (x1 - x0))
            previous = (point[0], max(previous[1], point[1]))
        return previous[1]

    def saturated(self) -> float:
        """tokens/s of one cell under full load."""
        return max(y for _, y in self.points) if self.points else self.half


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler sees at one instant."""

    now: float
    cells: int
    """Cells that can work (not lost, not set aside)."""
    training: int
    """Cells ordered to train (core included)."""
    core_training: bool
    core_usable: bool = True
    live: int
    """L: unfinished executions begun (in tool calls too)."""
    groups_per_batch: int
    groups_ready: int
    """Groups of the next batch whose micro-batches exist."""
    batch_full: bool
    """The batch will take no more groups: everything it needs is ready."""
    batch_open: bool
    """Some micro-batch of this batch is already leased or accumulated."""
    gate_closed: bool
    """The dispatch gate lets no new group begin."""
    micro_batches_waiting: int
    ready_work_s: float
    """Seconds one cell needs for the micro-batches waiting, from measured speed."""
    cells_busy_training: int
    """Training cells inside a micro-batch, or holding leases."""
    update_in_progress: bool
    """Commit or apply under way: no role changes but returns of drained satellites."""
    switch_s: float
    """Measured median of rollout->train plus train->rollout."""
    pull_s: float
    last_lend: float
    """`now` of the last lend; -inf before the first."""
    kv_tokens_live: int = 0
    kv_tokens_per_cell: int = 0
    """0 = unlimited."""
    evaluating: bool = False
    """Warm start or evaluation: nobody trains."""
    batches_done: int = 0
    window_complete: bool = False
    """colocate: every execution of the current window ended."""
    curve: EngineCurve = EngineCurve()


class Waterlevel(msgspec.Struct, frozen=True, kw_only=True):
    """The state shown to people and logged with each decision."""

    live: int
    marginal: float
    """r: marginal rollout value of the last rollout cell, in whole-cell units."""
    ready: float
    """b: share of the next batch's groups that are ready."""
    cells_needed: int
    """Smallest R with r(R+1) <= theta."""
    theta: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Target number of training cells now. The batch machine moves one cell at a time towards it:
    core first in, last out."""

    want: int
    reason: str
    waterlevel: Waterlevel
    forced: bool = False
    pause_rollout: bool = False
    """colocate_carry and forced: calls wait in the gateway while all cells train."""
