"""gyre cells --nodes FILE --ranks N: how an allocation is cut into equal cells, and what is left over.

Reads nodes and switches as SLURM prints them (`scontrol show node`, `scontrol show topology`, topology.conf) or from YAML.
"""

import argparse
import sys
from pathlib import Path

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", required=True, metavar="FILE", help="what `scontrol show node` prints, or YAML; - reads standard input")
    parser.add_argument("--topology", metavar="FILE", help="topology.conf, what `scontrol show topology` prints, or YAML; - as above")
    parser.add_argument("--ranks", required=True, type=int, metavar="N", help="ranks (devices) per cell")
    parser.add_argument("--kind", default="", help="make cells of this kind of device only (default: of each kind)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def call(args: argparse.Namespace) -> int:
    import json

    from gyre_hpc.allocation.cell_map import as_json, table
    from gyre_hpc.allocation.node_list import read_nodes
    from gyre_hpc.allocation.partition import partition
    from gyre_hpc.allocation.topology import read_topology

    if args.nodes == args.topology == "-":
        raise UserError("--topology", "-", "standard input holds the nodes already; name a file")
    nodes = read_nodes(_text("--nodes", args.nodes), f"--nodes {args.nodes}")
    topology = None if args.topology is None else _text("--topology", args.topology)
    switches = () if topology is None else read_topology(topology, f"--topology {args.topology}")
    cut = partition(nodes, switches, ranks_per_cell=args.ranks, kind=args.kind.lower())
    print(json.dumps(as_json(cut)) if args.json else table(cut))
    return 0


def _text(field: str, name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(field, name, f"cannot be read ({error}); name a text file") from error
