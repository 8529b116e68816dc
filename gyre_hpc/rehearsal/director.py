"""Plays one scenario: the harness runs, and what is to happen in the middle of an answer happens there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.clock import monotonic_s
from gyre_hpc.machines.execution import HarnessEnd
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.rehearsal.actor import Actor
from gyre_hpc.rehearsal.base import VERSIONS, Moment
from gyre_hpc.rehearsal.cells import Happening
from gyre_hpc.rehearsal.stage import Stage
from gyre_hpc.shell.timers import Timers

SILENT_S = 1.5
"""How long a slow cell says nothing: several keep-alive intervals of a rehearsal."""
_DEADLINE = "deadline"
_Happenings = asyncio.Queue[Happening | None]


@dataclass(kw_only=True, slots=True)
class Played:
    """What was seen of one scenario."""

    end: HarnessEnd
    seconds: float
    moments: list[Moment] = field(default_factory=list)
    is_late: bool = False
    """It did not end within its deadline and was stopped."""
    seen: list[Mapping[str, Any]] = field(default_factory=list)
    """Answers as the cells know them."""


class Director:
    """One scenario on one stage."""

    def __init__(self, stage: Stage, happenings: _Happenings) -> None:
        self._stage, self._happenings = stage, happenings
        self._moments: list[Moment] = []
        self._calls: set[str] = set()
        """Those in which something happened."""
        self._seen: list[Mapping[str, Any]] = []
        self._timers = Timers(self._due)
        self._is_late = False

    async def play(self, actor: Actor, begin: Begin, deadline_s: float) -> Played:
        """Raises CellFailed."""
        began = monotonic_s()
        self._timers.set(_DEADLINE, deadline_s)
        running = asyncio.get_running_loop().create_task(actor.run(begin, self._stage.url))
        running.add_done_callback(lambda task: self._happenings.put_nowait(None))
        try:
            while (happening := await self._happenings.get()) is not None or not running.done():
                if happening is None:
                    self._is_late = True
                    await actor.halt(begin.execution)
                else:
                    await self._happen(happening)
            end = await running
        except BaseException:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            raise
        finally:
            self._timers.close()
        seconds = monotonic_s() - began
        for cell in self._stage.cells:
            self._seen += await cell.seen()
        return Played(end=end, seconds=seconds, moments=self._moments, is_late=self._is_late, seen=self._seen)

    def _due(self, key: str) -> None:
        if key == _DEADLINE:
            self._happenings.put_nowait(None)
        else:
            self._happenings.put_nowait(Happening(cell=int(key), moment="", rid="", num_output=0))

    async def _happen(self, happening: Happening) -> None:
        cell = self._stage.cells[happening.cell]
        moment = Moment(happening.moment) if happening.moment else None
        call = happening.rid.rpartition("/")[0]
        if moment is None or call in self._calls:
            # A silence is over, or another cell came to the place where it happened already.
            await cell.go_on()
            return
        self._moments.append(moment)
        self._calls.add(call)
        match moment:
            case Moment.role_switch:
                cell.is_serving = False
                self._stage.route()
                await cell.leave()
            case Moment.cell_lost:
                self._seen += await cell.seen()
                await cell.kill()
                self._stage.route()
            case Moment.slow_cell:
                self._timers.set(str(cell.number), SILENT_S)
            case Moment.weights:
                for other in self._stage.cells:
                    await other.update(VERSIONS[-1])
                self._stage.route()
                await cell.go_on()
            case Moment.gateway_restart:
                await self._stage.stop_gateway()
                await self._stage.start()
                await cell.go_on()
