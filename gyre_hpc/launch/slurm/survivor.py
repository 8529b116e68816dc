"""A node that lost the first one while SLURM keeps the job: --no-kill lets it run on without its batch host, for ever and for nothing.

So one of the survivors says what follows. Only when SLURM took the first node out of the job, or nothing of the run shows a sign of life
any more: a node that is cut off from the others alone must not end what goes on without it. Until then, or until the job ends, it waits.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping

from gyre_hpc.allocation.hostlist import expand
from gyre_hpc.clock import monotonic_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.launch.holding import Stop
from gyre_hpc.launch.slurm import progress, queue
from gyre_hpc.launch.slurm.chain import Ending, Fate, Next, fate_of, follow
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.machines.supervision import NODE_LOST, STOPPED
from gyre_hpc.observability.job_events import ENDED, STARTED, of_job
from gyre_hpc.shell.timers import until
from gyre_hpc.supervisor.attempts import highest_attempt

_LOOK_EVERY_S = 2.0
_ASK_EVERY_S = 20.0
_STILL_S = 30.0
"""Signs of life are written every few seconds; a shared file system may show them that late."""
_FOR_EVER_S = 1e7


def go_on(config: Config, folder: RunFolder, task: Task, stop: Stop) -> tuple[Next, str] | None:
    """Order what follows; return it with its reason. None: it is not ours to say. Raises OSError."""
    if not asyncio.run(until(_Look(folder, task, stop).look, _LOOK_EVERY_S, _FOR_EVER_S)):
        return None
    with _alone(folder, f"{task.job}-{task.restarts}") as am_first:
        fate = fate_of(queue.job_fields(task.job), task.restarts)
        if not am_first or fate not in (Fate.running, Fate.preempted):
            return None
        attempt = highest_attempt(folder.attempts)
        fruitless, allocations = progress.fruitless(folder, attempt), progress.allocations(folder, attempt)
        code = STOPPED if progress.is_stopped(folder, attempt) else NODE_LOST
        ending = Ending(code=code, signal="", fate=fate, fruitless=fruitless, allocations=allocations)
        what, why = follow(ending, config.launch.chain, config.launch.chain_limit)
        # A waiting successor begins when this job is gone, however it goes.
        trouble = queue.requeue(task.job) if what is Next.requeue else queue.cancel(task.job)
        if trouble:
            raise OSError(trouble)
        return what, why


def is_taken_out(fields: Mapping[str, str]) -> bool:
    """SLURM goes on with the job without the node of its batch script (tried with 22.05)."""
    nodes, first = fields.get("NodeList", ""), fields.get("BatchHost", "")
    return bool(nodes and first) and first not in expand(nodes, "NodeList")


class _Look:
    """At the run's signs of life, and now and then at what SLURM says."""

    def __init__(self, folder: RunFolder, task: Task, stop: Stop) -> None:
        self._folder, self._task, self._stop = folder, task, stop
        self._stamp, self._since = self._newest(), monotonic_s()
        self._asked = float("-inf")

    def look(self) -> bool | None:
        """Whether it is ours to act; None: not known yet."""
        now = monotonic_s()
        if self._stop.came or _is_said(self._folder, self._task):
            return False
        if (stamp := self._newest()) != self._stamp:
            self._stamp, self._since = stamp, now
        if now - self._since >= _STILL_S:
            return True
        if now - self._asked < _ASK_EVERY_S:
            return None
        self._asked = now
        fields = queue.job_fields(self._task.job)
        if is_taken_out(fields):
            return True
        return None if fate_of(fields, self._task.restarts) in (Fate.running, Fate.preempted, Fate.unknown) else False

    def _newest(self) -> tuple[int, ...]:
        """Of another attempt's too: then somebody goes on."""
        attempt = highest_attempt(self._folder.attempts)
        return (attempt, _time(self._folder, attempt))


def _is_said(folder: RunFolder, task: Task) -> bool:
    """The first node lives and said what follows this start of the job."""
    events = of_job(folder, highest_attempt(folder.attempts))
    start = (task.job, task.restarts)
    is_ours = any((event.fields.get("job"), event.fields.get("restarts")) == start for event in events if event.kind == STARTED)
    return is_ours and any(event.kind == ENDED for event in events)


def _time(folder: RunFolder, attempt: int) -> int:
    """Opened, not just asked for: over NFS that brings the server's present answer."""
    try:
        with open(folder.alive(attempt), "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
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
