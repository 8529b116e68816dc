"""Actions between cells: snapshots, hand-ins, and the groups of a commit."""

import asyncio
from collections.abc import Callable
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.machines.cell import actions
from gyre_hpc.shell.host import Action
from gyre_hpc.transport.base import Groups, SnapshotStore

Progress = Callable[[Any], None]


class TransferActions:
    """PullSnapshot, HandInSum, HostGroup, Reduce, AbortReduce. `make_groups` is called when a first group is needed."""

    def __init__(self, crew: Crew, store: SnapshotStore, snapshot_url: str, make_groups: Callable[[], Groups]) -> None:
        self._crew, self._store, self._snapshot_url, self._make_groups = crew, store, snapshot_url, make_groups
        self._groups: Groups | None = None

    def table(self) -> dict[type, Action]:
        return {
            actions.PullSnapshot: self.pull,
            actions.HandInSum: self.hand_in,
            actions.HostGroup: self.host,
            actions.Reduce: self.reduce,
            actions.AbortReduce: self.abort,
        }

    async def pull(self, key: str, action: actions.PullSnapshot, progress: Progress) -> None:
        """Not in the trainer's thread: serving and training go on meanwhile."""
        await _in_thread(self._store.pull, action.version, action.sources, action.deadline_s)
        if self._crew.world > 1:
            # Between two commands of the other ranks: their engines and trainers take it from their own stores.
            await self._crew.ask(commands.Pull(action.version, self._snapshot_url, action.deadline_s), action.deadline_s)

    async def hand_in(self, key: str, action: actions.HandInSum, progress: Progress) -> None:
        data: bytes = await self._crew.ask(commands.SumBytes(), action.deadline_s)
        await _in_thread(self._store.hand_in, action.url, action.update, action.hand_in, data, action.deadline_s)

    async def host(self, key: str, action: actions.HostGroup, progress: Progress) -> str:
        return str(await _in_thread(self._open, action))

    def _open(self, action: actions.HostGroup) -> str:
        return self._all_groups().host(action.generation, action.nonce)

    async def reduce(self, key: str, action: actions.Reduce, progress: Progress) -> None:
        await self._crew.call(self._reduce, action)

    async def abort(self, key: str, action: actions.AbortReduce, progress: Progress) -> None:
        if self._groups is not None:
            await _in_thread(self._groups.abort, action.generation)

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()

    def _reduce(self, action: actions.Reduce) -> None:
        """In the trainer's thread. The scratch is new memory; the sum itself is only read (DESIGN §7 b)."""
        own, trainer = self._crew.own, self._crew.own.trainer
        own.scratch = None
        if action.world == 1:
            scratch = trainer.sum_from_bytes(self._crew.run(commands.SumBytes(), action.deadline_s))
        else:
            total = self._crew.run(commands.TakeSum(), action.deadline_s)
            scratch = self._all_groups().reduce(
                action.generation, action.address, action.nonce, action.rank, action.world, total, action.deadline_s
            )
        if action.rank != 0:
            return
        held = self._store.held(action.update) if action.accepted else {}
        for pair in action.accepted:
            scratch = scratch + trainer.sum_from_bytes(held[pair][1])
        own.scratch = scratch

    def _all_groups(self) -> Groups:
        if self._groups is None:
            self._groups = self._make_groups()
        return self._groups


async def _in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
