"""KV pages of the embedded engine for other cells: asyncio side. Books are kept by the cores of all ranks, by jobs."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from gyre_hpc.engines.base import Block, KvHeader, PageBytes, PagedKV, Reservation
from gyre_hpc.engines.calls import CallBook
from gyre_hpc.engines.embedded import jobs
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.scheduler.migration import Conversation


def layout_of(model: Qwen3Config, *, page_size: int, num_ranks: int, keep_kv: bool) -> str:
    """Digest of what a rank's page depends on beside the weights. model: the shape that one rank computes."""
    facts = f"{model!r} float32 page_size={page_size} ranks={num_ranks} keep_kv={keep_kv}"
    return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()


class EmbeddedKV(PagedKV):
    """ask: have a job done by all ranks. core: the leader's, of which only what a glance can see is read here."""

    def __init__(self, ask: Callable[[jobs.Job], Awaitable[Any]], core: EngineCore, book: CallBook, layout: str) -> None:
        self._ask, self._core, self._book, self._layout = ask, core, book, layout

    def header(self) -> KvHeader:
        self._memory()
        return KvHeader(version=self._core.version, layout=self._layout)

    async def conversations(self) -> tuple[Conversation, ...]:
        found: tuple[Conversation, ...] = await self._ask(jobs.ListConversations())
        return found

    async def lease(self, calls: tuple[str, ...]) -> tuple[int, tuple[Block, ...]]:
        numbers: list[int] = await self._ask(jobs.Lease(calls))
        return numbers[0], await self._ask(jobs.Blocks(numbers[0]))

    async def release(self, lease: int) -> None:
        await self._ask(jobs.Release(lease))

    def num_leases(self) -> int:
        memory = self._core.memory
        return memory.pages.num_leases if memory else 0

    async def reserve(self, header: KvHeader, blocks: tuple[Block, ...]) -> Reservation:
        if not self._book.is_open or header.layout != self._layout:
            return Reservation(number=0)
        reservations: list[Reservation] = await self._ask(jobs.Reserve(header.version, blocks))
        return reservations[0]

    async def publish(self, reservation: int, arrived: tuple[int, ...]) -> tuple[int, ...]:
        published: tuple[int, ...] = await self._ask(jobs.Publish(reservation, arrived))
        return published

    async def cancel(self, reservation: int) -> None:
        await self._ask(jobs.Cancel(reservation))

    def num_reservations(self) -> int:
        memory = self._core.memory
        return memory.pages.num_reservations if memory else 0

    def free_tokens(self) -> int:
        memory = self._core.memory
        return memory.pages.room() * memory.page_size if memory else 0

    def page_bytes(self) -> PageBytes | None:
        memory = self._core.memory
        return memory.page_bytes if memory else None

    def _memory(self) -> KVMemory:
        assert self._core.memory is not None, "asleep"
        return self._core.memory
