"""`python -m gyre_hpc.processes.cell`: one rank of a cell, under torchrun or alone.

Reads torchrun's variables; without them it is the only rank. Timed cells need neither torch nor torchrun.
"""

import logging
import os

from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.lifetime import die_with_born_parent, leave, limit_threads
from gyre_hpc.shell.refusal import refusing


def main(argv: list[str] | None = None) -> int:
    # Before anything loads torch, which takes seconds in which the parent may go.
    die_with_born_parent()
    limit_threads()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return refusing(lambda: _live(read_birth(argv)))


def _live(birth: Birth) -> None:
    stacks.of_birth(birth, rank=int(os.environ.get("RANK", "0")))
    from gyre_hpc.cell.place import Place
    from gyre_hpc.cell.run import run_rank

    run_rank(birth, Place.of(os.environ))


if __name__ == "__main__":
    leave(main())
