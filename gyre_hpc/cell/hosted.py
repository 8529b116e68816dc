"""Cells that share a process: each born, told to end and dropped by itself, on orders of the supervisor (shell/hosted.py).

Invariants (each has a test):
  - a cell's ending is told once, when nothing of it is left: no task, no socket, no thread of its own;
  - a cell that is killed, or that fails, takes no other one with it;
  - CPU seconds of the process are divided among the cells in it, so that their sum is what the process used.
"""

import asyncio
import contextvars
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gyre_hpc.cell.place import Place
from gyre_hpc.cell.run import Ends, lead
from gyre_hpc.cell.world import World
from gyre_hpc.errors import UserError
from gyre_hpc.observability.cpu import CpuShares
from gyre_hpc.observability.startup import Startup
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.hosted import CellEnding, CellOrder, Verb
from gyre_hpc.shell.own_log import OwnLog
from gyre_hpc.shell.refusal import REFUSED

log = logging.getLogger(__name__)
Key = tuple[str, int]


class Lead(Protocol):
    """cell.run.lead."""

    def __call__(
        self, birth: Birth, place: Place, world: World | None, *, ends: Ends, startup: Startup, cpu_s: Callable[[], float]
    ) -> Awaitable[None]: ...


@dataclass(kw_only=True, slots=True)
class _Life:
    task: asyncio.Task[None] | None = None
    ends: list[Callable[[str], None]] = field(default_factory=list)
    """What ends it in order, once it is far enough."""
    dropped_by: signal.Signals | None = None

    def drop(self, by: signal.Signals) -> None:
        self.dropped_by = self.dropped_by or by
        assert self.task is not None
        self.task.cancel()

    def end(self, reason: str) -> None:
        """Before it could hear of anything it ends as a process does that has no handler yet."""
        if not self.ends:
            self.drop(signal.SIGTERM)
        for end in self.ends:
            end(reason)


class HostedCells:
    """All cells of one process. Methods belong to the loop's thread."""

    def __init__(self, birth: Birth, tell: Callable[[CellEnding], None], lead: Lead = lead) -> None:
        """birth: of the process; cells have their own names and incarnations."""
        self._birth, self._tell, self._lead = birth, tell, lead
        self._lives: dict[Key, _Life] = {}
        self._shares = CpuShares()
        self._is_over = False

    def obey(self, order: CellOrder) -> None:
        key = (order.cell, order.incarnation)
        life = self._lives.get(key)
        match order.verb:
            case Verb.birth:
                assert life is None, f"{order.cell} {order.incarnation} is born twice"
                self._bear(key)
            case Verb.terminate if life is not None:
                life.end("SIGTERM")
            case Verb.kill if life is not None:
                life.drop(signal.SIGKILL)

    def end(self, reason: str) -> None:
        """All of them, in order; none is born any more."""
        self._is_over = True
        for life in list(self._lives.values()):
            life.end(reason)

    async def gone(self) -> None:
        """Back when no cell is left."""
        while tasks := [life.task for life in self._lives.values() if life.task is not None]:
            await asyncio.wait(tasks)

    def _bear(self, key: Key) -> None:
        if self._is_over:
            self._tell(CellEnding(*key, -signal.SIGTERM))
            return
        life = self._lives[key] = _Life()
        context = contextvars.copy_context()
        life.task = asyncio.get_running_loop().create_task(self._live(key, life), name=f"{key[0]}/{key[1]}", context=context)

    async def _live(self, key: Key, life: _Life) -> None:
        birth = replace(self._birth, name=key[0], incarnation=key[1])
        self._shares.enter(key)
        code = -signal.SIGKILL
        with OwnLog(birth.folder.log(birth.name)):
            try:
                code = await self._lived(birth, life, lambda: self._shares.of(key))
            finally:
                self._shares.leave(key)
                del self._lives[key]
                self._tell(CellEnding(*key, code))

    async def _lived(self, birth: Birth, life: _Life, cpu_s: Callable[[], float]) -> int:
        """What its exit code would be."""
        try:
            await self._lead(birth, Place(rank=0, world=1), None, ends=life.ends.append, startup=Startup(age=0.0), cpu_s=cpu_s)
        except asyncio.CancelledError:
            if life.dropped_by is None:
                raise
            return -life.dropped_by
        except UserError as error:
            log.error("%s", error)
            return REFUSED
        except Exception:  # the edge of what would be a process
            log.exception("%s ends", birth.name)
            return 1
        return 0
