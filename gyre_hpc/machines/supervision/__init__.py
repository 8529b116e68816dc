"""Supervision: children of all nodes, their restarts, the directory, the end of the run."""

from gyre_hpc.machines.supervision.actions import (
    CheckAttempts,
    DumpStacks,
    EndRun,
    KillProcess,
    MirrorDirectory,
    SpawnProcess,
    TerminateProcess,
)
from gyre_hpc.machines.supervision.machine import SupervisionMachine
from gyre_hpc.machines.supervision.settings import NODE_LOST, REFUSED, SUPERSEDED, SupervisionSettings

__all__ = [
    "NODE_LOST",
    "REFUSED",
    "SUPERSEDED",
    "CheckAttempts",
    "DumpStacks",
    "EndRun",
    "KillProcess",
    "MirrorDirectory",
    "SpawnProcess",
    "SupervisionMachine",
    "SupervisionSettings",
    "TerminateProcess",
]
