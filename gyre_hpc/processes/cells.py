"""`python -m gyre_hpc.processes.cells`: a process that several timed cells share, each a child of its own to the supervision machine.

Started by the supervisor, whose lines on stdin order births and ends (gyre_hpc/shell/hosted.py). Never loads torch.
"""

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.descriptors import raise_descriptor_limit
from gyre_hpc.shell.hosted import CellEnding, line_of, read_order
from gyre_hpc.shell.lifetime import die_with_born_parent, end_with_parent, leave, limit_threads
from gyre_hpc.shell.own_log import ByOwnLog
from gyre_hpc.shell.refusal import refusing

if TYPE_CHECKING:
    from gyre_hpc.cell.hosted import HostedCells


def main(argv: list[str] | None = None) -> int:
    die_with_born_parent()
    limit_threads()
    raise_descriptor_limit()
    handler = ByOwnLog()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[handler])
    answers = _keep_stdout()
    return refusing(lambda: asyncio.run(serve(read_birth(argv), answers)))


async def serve(birth: Birth, answers: int) -> None:
    """Until stdin closes, a signal comes or the parent goes. answers: descriptor that the supervisor reads."""
    stacks.of_birth(birth)
    from gyre_hpc.cell.hosted import HostedCells

    def tell(ending: CellEnding) -> None:
        os.write(answers, line_of(ending))

    cells = HostedCells(birth, tell)
    over = asyncio.get_running_loop().create_future()

    def end(reason: str) -> None:
        cells.end(reason)
        if not over.done():
            over.set_result(reason)

    end_with_parent(end)
    orders = await _stdin()
    reading = asyncio.create_task(_obey(orders, cells))
    await asyncio.wait([over, reading], return_when=asyncio.FIRST_COMPLETED)
    end("no more orders")
    await cells.gone()
    reading.cancel()


async def _obey(orders: asyncio.StreamReader, cells: "HostedCells") -> None:
    async for line in orders:
        cells.obey(read_order(line))


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _keep_stdout() -> int:
    """The descriptor that was stdout; what is printed from now on goes where stderr goes."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


if __name__ == "__main__":
    leave(main())
