"""Supervision: children of all nodes, their restarts, the directory, the end of the run."""

from gyre_hpc.machines.supervision.actions import (
    CheckAttempts,
    DumpStacks,
    EndRun,
    KillProcess,
    MirrorDirectory,
    ReadCommands,
    SpawnProcess,
    TerminateProcess,
    WriteAnswer,
)
from gyre_hpc.machines.supervision.machine import SupervisionMachine
from gyre_hpc.machines.supervision.settings import NODE_LOST, REFUSED, STOPPED, SUPERSEDED, SupervisionSettings

__all__ = [
    "NODE_LOST",
    "REFUSED",
    "STOPPED",
    "SUPERSEDED",
    "CheckAttempts",
    "DumpStacks",
    "EndRun",
    "KillProcess",
    "MirrorDirectory",
    "ReadCommands",
    "SpawnProcess",
    "SupervisionMachine",
    "SupervisionSettings",
    "TerminateProcess",
    "WriteAnswer",
]
