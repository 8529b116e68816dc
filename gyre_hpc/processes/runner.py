"""`python -m gyre_hpc.processes.runner`: started by the supervisor, runs executions."""

import asyncio
import logging
import sys

from gyre_hpc.runner.run import run
from gyre_hpc.shell import stacks
from gyre_hpc.shell.arguments import Birth, read_birth
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.refusal import refusing

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """0 when told to end, 2 when the configuration cannot work here."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    return refusing(lambda: asyncio.run(_live(read_birth(argv))))


async def _live(birth: Birth) -> None:
    stacks.of_birth(birth)
    events = open_events(birth.folder, birth.name, birth.attempt)
    try:
        log.info("runner ends: %s", await run(birth, events.note))
    finally:
        events.close()


if __name__ == "__main__":
    sys.exit(main())
