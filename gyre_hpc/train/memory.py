"""Memory of this rank, measured: what a role change is acknowledged with."""

from gyre_hpc.observability.memory import free_bytes, own_bytes
from gyre_hpc.protocol.to_batch import RankMemory


def measure(rank: int) -> RankMemory:
    """Host memory: free on the machine, used by this process. For trainers whose device is the CPU."""
    return RankMemory(rank=rank, free=free_bytes(), used=own_bytes())
