"""Numbers of supervision: which children, and how patient to be with them."""

from dataclasses import dataclass

from gyre_hpc.machines.supervision.child import Policy

SUPERSEDED = 75
"""Exit code when a newer attempt of the run lives (EX_TEMPFAIL)."""
REFUSED = 2
"""Exit code of a process that refuses its configuration: starting it again would change nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisionSettings:
    """Times in seconds."""

    name: str = "supervisor-0"
    attempt: int = 1
    services: tuple[str, ...] = ()
    """Always kept running: controller, gateway-0, runner-0 …, in the order of their start."""
    cells: tuple[str, ...] = ()
    """Started once; after a loss only on the controller's order."""
    extras: tuple[str, ...] = ()
    """Kept running until they end with code 0."""
    first_to_stop: tuple[str, ...] = ("controller",)
    """Told to end before the rest, so that they take no orderly stop for a loss."""
    start_deadline_s: float = 120.0
    """A process that has not registered by then counts as a failed start."""
    cell_start_deadline_s: float = 120.0
    """The same for cells: those with a server of their own register when it answers."""
    tick_s: float = 2.0
    silent_ticks: int = 15
    """Ticks without a heartbeat after which a service is stopped and started again. Ticks, not seconds: a machine that was
    suspended wakes with one tick, not with a dead service."""
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL."""
    backoff_s: float = 0.2
    backoff_cap_s: float = 10.0
    crash_limit: int = 5
    """More failures of one service than this within `crash_window_s` end the run."""
    crash_window_s: float = 120.0

    def start_s(self, policy: Policy) -> float:
        """Deadline of a start."""
        return self.cell_start_deadline_s if policy is Policy.cell else self.start_deadline_s
