"""Numbers of a node machine."""

from dataclasses import dataclass

from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.protocol.supervision import NodeOffer


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    """Times in seconds."""

    name: str
    """supervisor-2; a satellite job's: supervisor-j<job>n<node>."""
    life: str
    """Drawn anew at each start of the process."""
    url: str
    """It listens there."""
    offer: NodeOffer
    supervisor: str = FIRST
    """Who gives the orders."""
    report_s: float = 2.0
    silence_s: float = 20.0
    """Without newer orders for so long, the children are killed and the process ends. Shorter than the patience of supervisor-0."""
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL where a satellite leaves by itself; and how long killed children are waited for."""
    leave_s: float = 0.5
    """From the last report to the end, so that it gets through."""

    @property
    def is_joiner(self) -> bool:
        """Nobody planned this node."""
        return self.offer.cells > 0
