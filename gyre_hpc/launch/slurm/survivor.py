"""A node that lost the first one while SLURM keeps the job: --no-kill lets it run on without its batch host, for ever and for nothing.

So one of the survivors says what follows. Only when nothing of the run is written any more: a node that is cut off from the others
alone must not end what goes on without it.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.launch.slurm import progress, queue
from gyre_hpc.launch.slurm.chain import Ending, Fate, Next, fate_of, follow
from gyre_hpc.machines.supervision import NODE_LOST
from gyre_hpc.shell.timers import until
from gyre_hpc.supervisor.attempts import highest_attempt

_LOOK_EVERY_S = 0.5
_STILL_S = 10.0
"""status.json of a run that lives is written every second; a shared file system may show that some seconds late."""


def go_on(config: Config, folder: RunFolder, job: str, restarts: int) -> tuple[Next, str] | None:
    """Order what follows; return it with its reason. None: it is not ours to say. Raises OSError."""
    if _is_written(folder):
        return None
    with _alone(folder, f"{job}-{restarts}") as am_first:
        fate = fate_of(queue.job_fields(job), restarts)
        if not am_first or fate not in (Fate.running, Fate.preempted):
            return None
        attempt = highest_attempt(folder.attempts)
        ending = Ending(code=NODE_LOST, signal="", fate=fate, fruitless=progress.fruitless(folder, attempt), allocations=attempt)
        what, why = follow(ending, config.launch.chain, config.launch.chain_limit)
        # A waiting successor begins when this job is gone, however it goes.
        trouble = queue.requeue(job) if what is Next.requeue else queue.cancel(job)
        if trouble:
            raise OSError(trouble)
        return what, why


def _is_written(folder: RunFolder) -> bool:
    before = _stamp(folder)
    try:
        asyncio.run(until(lambda: _stamp(folder) != before or None, _LOOK_EVERY_S, _STILL_S))
    except TimeoutError:
        return False
    return True


def _stamp(folder: RunFolder) -> int:
    try:
        return folder.status.stat().st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def _alone(folder: RunFolder, start: str) -> Iterator[bool]:
    """Whether no other node of this start of the job is at it. What one could not do another may."""
    mark = folder.jobs / f"{start}.orphaned"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        yield False
        return
    try:
        yield True
    except OSError:
        mark.unlink(missing_ok=True)
        raise
