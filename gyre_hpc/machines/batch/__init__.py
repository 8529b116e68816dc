"""The batch machine: groups, gates, ledger, commits, versions, role orders. Lives in the controller."""

from gyre_hpc.machines.batch.machine import BatchMachine
from gyre_hpc.machines.batch.settings import BatchSettings

__all__ = ["BatchMachine", "BatchSettings"]
