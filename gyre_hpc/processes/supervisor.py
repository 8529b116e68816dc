"""`python -m gyre_hpc.processes.supervisor --run FOLDER --attempt N`: started by launch on the run's first node, starts everything else.

`--run FOLDER --node K [--job ID --restarts N]` on any other node of the job: learns from the run folder where supervisor-0 of that job
listens. `--run FOLDER --name supervisor-j<job>n<node> --cells N [--start FILE]` on a node that joins a running run.
"""

import argparse
import asyncio
import contextlib
import logging
import sys
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED
from gyre_hpc.protocol.node_map import FIRST, RunStart
from gyre_hpc.runner.scratch import remove_scratch
from gyre_hpc.shell.descriptors import raise_descriptor_limit
from gyre_hpc.shell.events import open_events
from gyre_hpc.shell.node_map import find_start, read_start
from gyre_hpc.shell.stacks import write_when_asked
from gyre_hpc.shell.timers import until
from gyre_hpc.supervisor.attempts import highest_attempt
from gyre_hpc.supervisor.commands import MODULES
from gyre_hpc.supervisor.here import Here, node_of
from gyre_hpc.supervisor.joining import RunOver, check_name, newest_start, room_for_cells
from gyre_hpc.supervisor.node_run import NodeSupervisor
from gyre_hpc.supervisor.run import Job, Supervisor

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5


def main(argv: list[str] | None = None) -> int:
    """Exit code of the run, or of this node."""
    given = _parser().parse_args(argv)
    # A pipe and two connections for each child.
    raise_descriptor_limit()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        check_name(given.name)
        here = Here.find(
            RunFolder(Path(given.run).resolve()),
            name=given.name or f"supervisor-{given.node}",
            interface=given.interface,
            host=given.host,
            modules=given.modules,
        )
        return asyncio.run(_first(here, given) if here.name == FIRST else _other(here, given))
    except UserError as error:
        print(error, file=sys.stderr, flush=True)
        return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--attempt", type=int, default=0, help="the first node's own; elsewhere the one to belong to, 0: see --job")
    parser.add_argument("--node", type=int, default=0, help="place of this node in the allocation")
    parser.add_argument("--name", default="", help="of this supervisor, on a node that joins; goes before --node")
    parser.add_argument("--job", default="", help="SLURM job that runs the attempt")
    parser.add_argument("--restarts", type=int, default=0, help="how often that job was started again")
    parser.add_argument("--start", default="", help="start.json of the attempt; empty: the newest one that fits")
    parser.add_argument("--cells", type=int, default=0, help="that a node that joins brings; 0: as its GPUs allow")
    parser.add_argument("--interface", default="", help="goes before network.interface")
    parser.add_argument("--host", default="", help="name of this node, for people")
    parser.add_argument("--modules", default=MODULES, help="package of the process mains")
    return parser


async def _first(here: Here, given: argparse.Namespace) -> int:
    if given.attempt < 1:
        raise UserError("--attempt", given.attempt, "on the first node: the number that was claimed in the run folder")
    write_when_asked(here.folder.stacks(here.name, given.attempt, 1))
    supervisor = Supervisor(here, given.attempt, Job(id=given.job, restarts=given.restarts))
    with contextlib.closing(open_events(here.folder, here.name, given.attempt)) as events:
        code = await supervisor.run(events.note)
    await _remove_scratch(here, given.attempt, code)
    return code


async def _other(here: Here, given: argparse.Namespace) -> int:
    deadline_s = here.config.cluster.start_deadline_s
    try:
        start = await until(lambda: _find(here.folder, given), _LOOK_EVERY_S, deadline_s)
    except RunOver as over:
        log.info("%s ends: %s", here.name, over)
        return 0
    except TimeoutError:
        log.error("%s of this run did not come up within %g s; see %s", FIRST, deadline_s, here.folder.log(FIRST))
        return NODE_LOST
    write_when_asked(here.folder.stacks(here.name, start.attempt, 1))
    cells = 0 if not given.name else given.cells or room_for_cells(here, start.attempt)
    supervisor = NodeSupervisor(here, start, cells)
    with contextlib.closing(open_events(here.folder, here.name, start.attempt)) as events:
        code = await supervisor.run(events.note)
    await _remove_scratch(here, start.attempt, code)
    return code


async def _remove_scratch(here: Here, attempt: int, code: int) -> None:
    def is_newest() -> bool:
        return highest_attempt(here.folder.attempts) == attempt

    await asyncio.to_thread(remove_scratch, here.config, here.folder, code, is_newest=is_newest, node=node_of(here.name))


def _find(folder: RunFolder, given: argparse.Namespace) -> RunStart | None:
    if given.start:
        return read_start(Path(given.start))
    if given.name:
        return newest_start(folder)
    return find_start(folder, attempt=given.attempt, job=given.job, restarts=given.restarts)


if __name__ == "__main__":
    sys.exit(main())
