"""Execution: begin, deadlines, stop, score and end of every execution of one runner."""

from gyre_hpc.machines.execution.actions import (
    HarnessEnd,
    MeasureUsage,
    PrepareWorkspace,
    RemoveWorkspace,
    RunHarness,
    Scored,
    ScoreWorkspace,
    StopHarness,
    SweepWorkspaces,
    Unscorable,
)
from gyre_hpc.machines.execution.machine import RunnerMachine
from gyre_hpc.machines.execution.records import Began, Finish, Forgotten, Record
from gyre_hpc.machines.execution.settings import RunnerSettings

__all__ = [
    "Began",
    "Finish",
    "Forgotten",
    "HarnessEnd",
    "MeasureUsage",
    "PrepareWorkspace",
    "Record",
    "RemoveWorkspace",
    "RunHarness",
    "RunnerMachine",
    "RunnerSettings",
    "ScoreWorkspace",
    "Scored",
    "StopHarness",
    "SweepWorkspaces",
    "Unscorable",
]
