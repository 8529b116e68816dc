"""`python -m gyre_hpc.processes.supervisor --run FOLDER --attempt N`: started by launch, starts everything else."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.shell.stacks import write_when_asked
from gyre_hpc.supervisor.commands import MODULES
from gyre_hpc.supervisor.run import Supervisor


def main(argv: list[str] | None = None) -> int:
    """Exit code of the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--modules", default=MODULES, help="package of the process mains")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    folder = RunFolder(Path(given.run).resolve())
    write_when_asked(folder.stacks("supervisor-0", given.attempt, 1))
    return asyncio.run(_supervise(folder, given.attempt, given.modules))


async def _supervise(folder: RunFolder, attempt: int, modules: str) -> int:
    events = EventWriter(folder.events("supervisor-0", attempt), "supervisor-0", attempt)
    try:
        return await Supervisor(folder, attempt, modules).run(events.note)
    finally:
        events.close()


if __name__ == "__main__":
    sys.exit(main())
