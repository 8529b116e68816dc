"""Numbers of supervision: which children, and how patient to be with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gyre_hpc.machines.supervision.child import Policy
from gyre_hpc.protocol.node_map import FIRST

SUPERSEDED = 75
"""Exit code when a newer attempt of the run lives (EX_TEMPFAIL)."""
STOPPED = 130
"""Exit code of a run that was told to stop before its end."""
REFUSED = 2
"""Exit code of a process that refuses its configuration: starting it again would change nothing."""
NODE_LOST = 71
"""Exit code of a run whose core lost a node, and of a node's supervisor that lost supervisor-0 (EX_OSERR): the chain goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisionSettings:
    """Times in seconds."""

    name: str = FIRST
    attempt: int = 1
    services: tuple[str, ...] = ()
    """Always kept running: controller, gateway-0, runner-0 …, in the order of their start."""
    cells: tuple[str, ...] = ()
    """Started once; after a loss only on the controller's order."""
    extras: tuple[str, ...] = ()
    """Kept running until they end with code 0."""
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Child -> supervisors of its nodes, part 0's first; a child that is missing is on this node alone."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Supervisor of each other node of the allocation -> host name, for people. Nodes without children may stand here too."""
    core: str = "cell-0"
    """The cell without which the attempt is over."""
    node_silence_ticks: int = 15
    """Ticks without a report after which a node is given up for the attempt. Its own fence (NodeSettings.silence_s) comes earlier."""
    takes_joiners: bool = True
    """Nodes that nobody planned may bring cells."""
    kind: str = ""
    """Of GPU, as NodeOffer.kind: theirs must be the same."""
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
    publish_s: float = 0.25
    """With up to 64 processes, in proportion with more: at least between two directories of which the later has no news of nodes: with many processes that come at once each would be
    told of each."""
    commands_s: float = 2.0
    """Between two looks for orders in the run folder."""
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL."""
    stacks_again_s: float = 60.0
    """Between two times that the controller has the stacks of one child written."""
    save_answer_s: float = 5.0
    """A stop in order first asks the controller for the last checkpoint: so long until its first answer."""
    save_s: float = 90.0
    """Longest that a stop in order waits for it."""
    save_again_s: float = 1.0
    backoff_s: float = 0.2
    backoff_cap_s: float = 10.0
    crash_limit: int = 5
    """More failures of one service than this within `crash_window_s` end the run."""
    crash_window_s: float = 120.0

    @property
    def nodes(self) -> tuple[str, ...]:
        """Supervisors of the planned nodes beside this one."""
        named = [*self.hosts, *(place for places in self.places.values() for place in places)]
        return tuple(dict.fromkeys(name for name in named if name != self.name))

    def start_s(self, policy: Policy) -> float:
        """Deadline of a start."""
        return self.cell_start_deadline_s if policy is Policy.cell else self.start_deadline_s
