"""KV that comes from other cells: room is reserved, pages are fetched, checked and published, and nothing stays behind.

Invariants:
  - a reservation ends: by /kv/drop, by its own deadline (its source may be dead), or because this cell's engine goes to sleep;
  - nobody writes into pages of a reservation that is over: it ends between two fetches;
  - a page is published only after every rank found its checksum right.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.kv_wire import Ask, BadBody, Drop, Fetched, Room, Take, Taken, bad_deadline, decode, encode
from gyre_hpc.engines.base import PagedKV
from gyre_hpc.shell.timers import after

log = logging.getLogger(__name__)
GRACE_S = 30.0
"""A rank ends a fetch by its deadline; one that says nothing for so long after it is lost."""
_FETCHED = msgspec.msgpack.Decoder(Fetched)
Result = TypeVar("Result")


class _Coming:
    """One open reservation."""

    def __init__(self, num_wanted: int, timer: asyncio.TimerHandle) -> None:
        self.num_wanted, self.timer = num_wanted, timer
        self.lock = asyncio.Lock()
        """Held while pages are written and published."""


class KvIntake:
    """The target's side. Lives in the leader's loop."""

    def __init__(self, kv: PagedKV, crew: Crew) -> None:
        self._kv, self._crew = kv, crew
        self._coming: dict[int, _Coming] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/kv/wanted", _answering(self._wanted))
        app.router.add_post("/kv/take", _answering(self._take))
        app.router.add_post("/kv/drop", _answering(self._drop))

    async def let_go(self) -> None:
        """Every reservation ends, as soon as the fetch that is under way for it has. The engine's admission is closed, so that
        there are no new ones."""
        await asyncio.gather(*(self._end(reservation) for reservation in tuple(self._coming)))

    async def _wanted(self, data: bytes) -> bytes:
        ask = decode(Ask, data, lambda ask: bad_deadline(ask.deadline_s))
        return encode(await self._apart(self._reserve(ask)))

    async def _reserve(self, ask: Ask) -> Room:
        try:
            reservation = await self._kv.reserve(ask.header, ask.blocks)
        except ValueError as error:
            raise BadBody(f"Ask.{error}") from None
        number = reservation.number
        if not number:
            return Room(0, reason="it takes no calls now, or serves another version or in another layout")
        timer = after(ask.deadline_s, lambda: self._expire(number, ask.source))
        self._coming[number] = _Coming(len(reservation.wanted), timer)
        return Room(number, reservation.wanted, reservation.num_blocks)

    async def _take(self, data: bytes) -> bytes:
        take = decode(Take, data, self._bad_take)
        return encode(await self._apart(self._fetch(take)))

    def _bad_take(self, take: Take) -> str:
        if len(take.offers) != self._crew.world:
            return f"offers: {len(take.offers)} ranks; this cell has {self._crew.world}"
        coming = self._coming.get(take.reservation)
        if coming is not None and not 0 <= take.start < take.end <= coming.num_wanted:
            return f"start={take.start}, end={take.end}: {coming.num_wanted} blocks are wanted"
        return bad_deadline(take.deadline_s)

    async def _fetch(self, take: Take) -> Taken:
        coming = self._coming.get(take.reservation)
        if coming is None:
            return Taken(trouble="the reservation is over")
        async with coming.lock:
            if take.reservation not in self._coming:
                return Taken(trouble="the reservation is over")
            command = commands.KvFetch(take.reservation, take.start, take.end, take.offers, take.deadline_s)
            told = await self._crew.ask_each(command, take.deadline_s + GRACE_S)
            fetched = [_FETCHED.decode(one) for one in told]
            trouble = "; ".join(f"rank {rank}: {one.trouble}" for rank, one in enumerate(fetched) if one.trouble)
            if trouble:
                return Taken(trouble=trouble)
            bad = {place for one in fetched for place in one.bad}
            good = tuple(place for place in range(take.start, take.end) if place not in bad)
            published = await self._kv.publish(take.reservation, good)
        return Taken(published, f"{len(bad)} blocks came damaged" if bad else "")

    async def _drop(self, data: bytes) -> bytes:
        await self._apart(self._end(decode(Drop, data).reservation))
        return b""

    def _expire(self, reservation: int, source: str) -> None:
        if reservation in self._coming:
            log.warning("KV from %s: reservation %s reached its deadline", source, reservation)
            self._keep(self._end(reservation))

    async def _end(self, reservation: int) -> None:
        coming = self._coming.get(reservation)
        if coming is None:
            return
        async with coming.lock:
            if self._coming.pop(reservation, None) is not None:
                coming.timer.cancel()
                await self._kv.cancel(reservation)

    def _keep(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _apart(self, work: Coroutine[Any, Any, Result]) -> Result:
        """A source that hangs up does not stop what it began: a rank writes until the fetch is over."""
        return await asyncio.shield(self._keep(work))


def _answering(act: Callable[[bytes], Awaitable[bytes]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            return web.Response(body=await act(await request.read()), content_type="application/msgpack")
        except BadBody as error:
            return web.Response(status=400, text=str(error))

    return handle
