"""The cell machine: admission, switch steps, fence, manifest, applied updates (home: the cell leader)."""

from gyre_hpc.machines.cell.machine import CellMachine
from gyre_hpc.machines.cell.settings import CellSettings

__all__ = ["CellMachine", "CellSettings"]
