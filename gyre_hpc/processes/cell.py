"""`python -m gyre_hpc.processes.cell`: one rank of a cell, under torchrun or alone.

Reads RANK and WORLD_SIZE (defaults 0 and 1). Timed cells need neither torch nor torchrun.
"""

import logging
import os

from gyre_hpc.shell.arguments import read_birth
from gyre_hpc.shell.lifetime import die_with_born_parent, leave, limit_threads


def main(argv: list[str] | None = None) -> int:
    # Before anything loads torch, which takes seconds in which the parent may go.
    die_with_born_parent()
    limit_threads()
    from gyre_hpc.cell.run import Place, run_rank

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    place = Place(rank=int(os.environ.get("RANK", "0")), world=int(os.environ.get("WORLD_SIZE", "1")))
    run_rank(read_birth(argv), place)
    return 0


if __name__ == "__main__":
    leave(main())
