"""An allocation cut into equal cells, aware of its switches: values in, values out. No SLURM command, file or clock here.

base.py       nodes, switches, cells, leftovers
hostlist.py   `node[01-04,7]` and back
slurm_text.py SLURM's KEY=VALUE records
node_list.py  nodes from text: what `scontrol show node` prints, or YAML of ours
topology.py   the tree of switches from text: topology.conf, `scontrol show topology`, or YAML of ours
partition.py  the cut
cell_map.py   the cut as a table for people and as JSON
"""

from gyre_hpc.allocation.base import Cell, Leftover, Node, Partition, Rank, Reason, Switch
from gyre_hpc.allocation.partition import partition

__all__ = ["Cell", "Leftover", "Node", "Partition", "Rank", "Reason", "Switch", "partition"]
