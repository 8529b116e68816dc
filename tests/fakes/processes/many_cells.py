"""Several timed cells in one process: `python -m tests.fakes.processes.many_cells --cells cell-0,cell-1 ...arguments of one cell`."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

from gyre_hpc.cell.place import Place
from gyre_hpc.cell.run import lead
from gyre_hpc.shell.arguments import read_birth
from gyre_hpc.shell.lifetime import end_with_parent


async def live(names: list[str], argv: list[str]) -> None:
    birth = read_birth(argv)
    ends: list[Callable[[str], None]] = []
    end_with_parent(lambda reason: [end(reason) for end in ends])
    await asyncio.gather(*(lead(replace(birth, name=name), Place(rank=0, world=1), None, ends.append) for name in names))
    assert "torch" not in sys.modules


if __name__ == "__main__":
    asyncio.run(live(sys.argv[2].split(","), sys.argv[3:]))
