"""What a cell machine is told once, at its birth."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSettings:
    """Constant for one incarnation. Deadlines are seconds; each belongs to one kind of step."""

    name: str
    incarnation: int
    ranks: int = 1
    """Every role change must be acknowledged by so many ranks."""
    engine_url: str = ""
    snapshot_url: str = ""
    controller: str = "controller"
    heartbeat_s: float = 0.5
    quiet_heartbeat_s: float = 3.0
    """Once nothing changes any more: each heartbeat that says nothing new doubles the time to the next one, up to this."""
    core_heartbeat_s: float = 0.1
    """Of the core while it trains."""
    retry_s: float = 1.0
    """A failed step, pull or fetch is tried again after this."""
    checkpoint_before_publish: bool = True
    checkpoint_every: int = 1
    """Save at versions whose step is a multiple of this."""
    fetch_ahead: int = 2
    """Micro-batches fetched or being fetched beyond the one in progress."""
    memory_limit: int = 0
    """Bytes of device memory a rank may use once its engine sleeps; a cell above it does not train. 0: no limit."""
    prefill_tokens_per_s: float = 4000.0
    """Until measured: what moving a conversation is weighed against."""
    move_tokens_per_s: float = 40000.0
    """Until measured."""
    switch_deadline_s: float = 60.0
    pull_deadline_s: float = 30.0
    fetch_deadline_s: float = 30.0
    accumulate_deadline_s: float = 600.0
    hand_in_deadline_s: float = 30.0
    """One try, and all tries together: after that the sum is dropped and the role change goes on."""
    reduce_deadline_s: float = 30.0
    apply_deadline_s: float = 120.0
    save_deadline_s: float = 300.0
    fit_deadline_s: float = 3600.0
    measure_deadline_s: float = 10.0
