"""Node: carries out what supervision decides on a node that is not the first one."""

from gyre_hpc.machines.node.machine import NodeMachine
from gyre_hpc.machines.node.settings import NodeSettings

__all__ = ["NodeMachine", "NodeSettings"]
