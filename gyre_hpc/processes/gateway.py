"""`python -m gyre_hpc.processes.gateway`: one gateway shard, started by the supervisor. Never loads torch."""

import asyncio
import logging
import os
import sys

from gyre_hpc.gateway.run import Gateway
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.descriptors import raise_descriptor_limit
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.refusal import refusing


async def serve(birth: Birth) -> None:
    """Until the parent goes, a signal comes, or a newer attempt of the run lives."""
    stacks.of_birth(birth)
    events = open_events(birth.folder, birth.name, birth.attempt)
    gateway = Gateway(birth, events.note, os.getpid())
    end_with_parent(gateway.host.end)
    try:
        await gateway.start()
        reason = await gateway.host.ended
        events.note("process_ended", {"reason": reason})
    finally:
        await gateway.close()
        events.close()


def main(argv: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # Every live call has two connections: its client's and its cell's.
    raise_descriptor_limit()
    return refusing(lambda: asyncio.run(serve(read_birth(argv))))


if __name__ == "__main__":
    sys.exit(main())
