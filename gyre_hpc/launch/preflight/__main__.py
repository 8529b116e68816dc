"""`python -m gyre_hpc.launch.preflight --meeting FOLDER --nodes N`: one node's part; started on each of them by srun."""

import argparse
import os
import sys
from pathlib import Path

from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.gather import main_of_node
from gyre_hpc.launch.preflight.probe import host_here


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meeting", required=True, type=Path)
    parser.add_argument("--nodes", required=True, type=int)
    parser.add_argument("--node", type=int, default=int(os.environ.get("SLURM_NODEID", "0")), help="place of this node (default: SLURM's)")
    given = parser.parse_args()
    try:
        return main_of_node(given.meeting, given.node, given.nodes)
    except (UserError, OSError) as error:
        print(f"{host_here()}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
