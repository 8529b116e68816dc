"""KV pages of the timed engine for other cells: the books of the real ones, no bytes; what comes takes the time it would take."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Protocol

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.base import Block, KvHeader, PagedKV, Reservation
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.protocol.identity import Version
from gyre_hpc.scheduler.migration import Conversation


class Books(Protocol):
    """What a timed engine keeps of its pages."""

    @property
    def pages(self) -> KvPages: ...

    @property
    def is_awake(self) -> bool: ...

    @property
    def takes_calls(self) -> bool: ...

    @property
    def version(self) -> Version: ...

    def publish_all(self) -> None:
        """Let conversations be as long as their calls have come."""

    def admit(self) -> None:
        """There may be room again."""


class TimedKV(PagedKV):
    """after: the engine's timer."""

    def __init__(self, books: Books, config: EngineConfig, after: Callable[[float, Callable[[], None]], object]) -> None:
        self._books, self._after, self._page_size = books, after, config.page_size
        self._page_s = config.page_size / config.timed_move_tokens_per_s * config.time_scale
        facts = f"timed page_size={config.page_size} keep_kv={config.keep_kv}"
        self._layout = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()

    def header(self) -> KvHeader:
        assert self._books.is_awake, "asleep"
        return KvHeader(version=self._books.version, layout=self._layout)

    async def conversations(self) -> tuple[Conversation, ...]:
        self._books.publish_all()
        return self._books.pages.conversations()

    async def lease(self, calls: tuple[str, ...]) -> tuple[int, tuple[Block, ...]]:
        if not self._books.is_awake:
            return 0, ()
        self._books.publish_all()
        lease = self._books.pages.lease(calls)
        return lease, self._books.pages.blocks(lease)

    async def release(self, lease: int) -> None:
        self._books.pages.release(lease)
        self._books.admit()

    def num_leases(self) -> int:
        return self._books.pages.num_leases

    async def reserve(self, header: KvHeader, blocks: tuple[Block, ...]) -> Reservation:
        if not (self._books.is_awake and self._books.takes_calls and header == self.header()):
            return Reservation(number=0)
        return self._books.pages.reserve(header.version, blocks)

    async def publish(self, reservation: int, arrived: tuple[int, ...]) -> tuple[int, ...]:
        here = asyncio.Event()
        self._after(self._page_s * len(arrived), here.set)
        await here.wait()
        return self._books.pages.publish(reservation, arrived, self._books.version)

    async def cancel(self, reservation: int) -> None:
        self._books.pages.cancel(reservation)
        self._books.admit()

    def num_reservations(self) -> int:
        return self._books.pages.num_reservations

    def free_tokens(self) -> int:
        return self._books.pages.room() * self._page_size if self._books.is_awake else 0

    def page_bytes(self) -> None:
        return None
