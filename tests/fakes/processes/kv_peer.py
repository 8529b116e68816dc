"""One end of a transfer in a process of its own, to be killed: `python -m tests.fakes.processes.kv_peer TRANSPORT PIECE_BYTES`.

Says its two addresses, then does what it reads: lines of JSON, each answered by one.
"""

import asyncio
import json
import sys

from gyre_hpc.cell import kv_transfer
from tests.fakes.kv_cells import KvCell, kv_cells

THERE = "there"
"""Name of the other end."""


async def serve(cell: KvCell, known: dict[str, str]) -> None:
    say({"kv": known["cell-0"], "engine": cell.serving.url})
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = json.loads(line)
        if "generate" in told:
            answer = await cell.generate(told["generate"], told["num_tokens"], told["call"])
            say({"output_ids": answer["output_ids"], "cached": answer["meta_info"]["cached_tokens"]})
        else:
            known[THERE] = told["give_to"]
            result = await cell.give(told["call"], to=THERE, deadline_s=told["deadline_s"])
            say({"num_tokens": result.num_tokens, "trouble": result.trouble})


def say(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


async def main() -> None:
    kv_transfer.FIRST_BYTES = kv_transfer.LARGEST_BYTES = int(sys.argv[2])
    known: dict[str, str] = {}
    async with kv_cells("embedded", sys.argv[1], configs=({},), addresses=known) as (cell,):
        await serve(cell, known)


if __name__ == "__main__":
    asyncio.run(main())
