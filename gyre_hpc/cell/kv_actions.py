"""Actions on KV that moves between cells: ListConversations, MoveKv, QuietKv."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.kv_client import KvClient
from gyre_hpc.cell.kv_intake import KvIntake
from gyre_hpc.cell.kv_transfer import KvTransfer
from gyre_hpc.clock import monotonic_s
from gyre_hpc.engines.base import Engine
from gyre_hpc.machines.cell import actions
from gyre_hpc.protocol.to_batch import Moved
from gyre_hpc.scheduler.migration import Conversation, Move
from gyre_hpc.shell.host import Action
from gyre_hpc.shell.timers import within

log = logging.getLogger(__name__)
READY_S = 60.0
"""RDMA pins all of it."""
_TROUBLE = msgspec.msgpack.Decoder(str)
Progress = Callable[[Any], None]
_SHARE = 0.95
"""Of the budget that a move may use, so that its end is told within it."""


class KvActions:
    """client and intake live as long as the cell."""

    def __init__(self, name: str, engine: Engine, crew: Crew, client: KvClient, intake: KvIntake | None) -> None:
        self._name, self._engine, self._crew, self._client, self._intake = name, engine, crew, client, intake
        self._ending: set[asyncio.Task[None]] = set()
        """Transfers that are over, and whose pages somebody may still read."""
        self._readying: asyncio.Task[None] | None = None

    def table(self) -> dict[type, Action]:
        return {
            actions.ListConversations: self.list_conversations,
            actions.MoveKv: self.move,
            actions.QuietKv: self.quiet,
        }

    async def list_conversations(self, key: str, action: actions.ListConversations, progress: Progress) -> tuple[Conversation, ...]:
        return () if self._engine.kv is None else await self._engine.kv.conversations()

    async def move(self, key: str, action: actions.MoveKv, progress: Progress) -> actions.MoveResult:
        if self._engine.kv is None:
            return actions.MoveResult(trouble="this engine's KV does not move")
        begun, budget_s = monotonic_s(), action.deadline_s * _SHARE
        transfers = [
            KvTransfer(
                self._engine.kv, self._crew, self._client, source=self._name, target=target, calls=calls, until=begun + budget_s
            )
            for target, calls in _by_target(action.moves).items()
        ]  # fmt: skip
        try:
            async with within(budget_s):
                await asyncio.gather(*(self._run(transfer) for transfer in transfers))
        except TimeoutError:
            for transfer in transfers:
                transfer.trouble = transfer.trouble or "the time for it is over"
        return _result(action.moves, transfers, monotonic_s() - begun)

    async def _run(self, transfer: KvTransfer) -> None:
        try:
            await transfer.run()
        finally:
            ending = asyncio.get_running_loop().create_task(transfer.end())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def quiet(self, key: str, action: actions.QuietKv, progress: Progress) -> int:
        await self._wait_for_quiet(action.deadline_s)
        kv = self._engine.kv
        return 0 if kv is None else kv.num_leases() + kv.num_reservations()

    def after_wake(self) -> None:
        """Ranks make the new memory known to their transports before anything moves; nobody waits for it."""
        if self._engine.kv is not None:
            task = asyncio.get_running_loop().create_task(self._get_ready())
            self._readying = task

    async def _get_ready(self) -> None:
        for rank, told in enumerate(await self._crew.ask_each(commands.KvReady(), READY_S)):
            if trouble := _TROUBLE.decode(told):
                log.warning("KV of rank %d cannot move: %s", rank, trouble)

    async def before_sleep(self, deadline_s: float) -> None:
        """The engine is about to give its memory back: nothing moves, and no transport holds it."""
        kv = self._engine.kv
        if kv is None:
            return
        await self._wait_for_quiet(deadline_s)
        if not kv.num_leases() + kv.num_reservations():
            await self._crew.ask_each(commands.KvEnd(), deadline_s)

    async def _wait_for_quiet(self, deadline_s: float) -> None:
        try:
            async with within(deadline_s):
                if self._intake is not None:
                    await asyncio.shield(self._intake.let_go())
                if self._ending:
                    await asyncio.wait(self._ending)
        except TimeoutError:
            return


def _by_target(moves: tuple[Move, ...]) -> dict[str, tuple[str, ...]]:
    calls: dict[str, list[str]] = {}
    for move in moves:
        calls.setdefault(move.cell, []).append(move.call)
    return {target: tuple(dict.fromkeys(names)) for target, names in calls.items()}


def _result(moves: tuple[Move, ...], transfers: list[KvTransfer], seconds: float) -> actions.MoveResult:
    went = {transfer.target: set(transfer.moved()) for transfer in transfers}
    return actions.MoveResult(
        moved=tuple(Moved(move.call, move.cell) for move in moves if move.call in went[move.cell]),
        num_tokens=sum(transfer.num_tokens for transfer in transfers),
        seconds=seconds,
        trouble="; ".join(f"{transfer.target}: {transfer.trouble}" for transfer in transfers if transfer.trouble),
    )
