"""The leader's side of its ranks: one command at a time, in the trainer's thread, acknowledged by every rank."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.rank import Rank
from gyre_hpc.cell.world import Channel
from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import CellLost

RECEIPT_S = 10.0
"""A rank that is alive takes a command at once."""
SILENCE_S = 20.0
"""A rank at work that is alive says so more often (follow.BEAT_S), however long its command may take."""


class Crew:
    """All ranks of the cell. A rank that once missed a deadline is lost: gloo has closed its connection."""

    def __init__(self, own: Rank, world: int, channel: Channel | None) -> None:
        assert world == 1 or channel is not None
        self.own, self.world = own, world
        self._channel = channel
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainer")
        self._beside = ThreadPoolExecutor(max_workers=8, thread_name_prefix="kv")
        self._num_waiting = 0
        self._lost = ""
        self.answers: tuple[commands.Answer, ...] = (own.answer(None),)
        """Newest answer of every rank, in rank order."""

    @property
    def is_busy(self) -> bool:
        return self._num_waiting > 0

    async def ask(self, command: commands.Command, deadline_s: float) -> Any:
        """Every rank carries `command` out; returns the leader's result. Raises CellLost naming a silent rank."""
        return await self.call(self.run, command, deadline_s)

    async def ask_each(self, command: commands.KvCommand, deadline_s: float) -> tuple[bytes, ...]:
        """As `ask`; returns what every rank said, in rank order. A single rank does it beside the trainer's work: one slow
        transfer holds up nothing else."""
        if self.world == 1:
            return (await asyncio.get_running_loop().run_in_executor(self._beside, self.own.do, command),)
        told: tuple[bytes, ...] = await self.call(self._run_each, command, deadline_s)
        return told

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in the trainer's thread."""
        self._num_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        finally:
            self._num_waiting -= 1

    def run(self, command: commands.Command, deadline_s: float) -> Any:
        """In the trainer's thread."""
        if self._lost:
            raise CellLost(self._lost)
        try:
            return self._run(command, deadline_s)
        except CellLost as error:
            self._lost = str(error)
            raise

    def _run_each(self, command: commands.KvCommand, deadline_s: float) -> tuple[bytes, ...]:
        self.run(command, deadline_s)
        return tuple(answer.result for answer in self.answers)

    def _run(self, command: commands.Command, deadline_s: float) -> Any:
        self._tell(commands.encode(command), min(RECEIPT_S, deadline_s))
        result: Any = None
        try:
            result = self.own.do(command)
        finally:
            # Heard whatever happened here: their answers must not be taken for those of the next command.
            followers = self._hear(deadline_s)
            self.answers = (self.own.answer(result), *followers)
        for rank, answer in enumerate(followers, start=1):
            if answer.error:
                raise RuntimeError(f"rank {rank}: {answer.error}")
        return result

    def _tell(self, data: bytes, deadline_s: float) -> None:
        if self._channel is None:
            return
        for rank in range(1, self.world):
            self._channel.send(rank, data, deadline_s)
        for rank in range(1, self.world):
            assert self._channel.receive(rank, deadline_s) == commands.TAKEN

    def _hear(self, deadline_s: float) -> list[commands.Answer]:
        if self._channel is None:
            return []
        until = monotonic_s() + deadline_s
        return [commands.decode_answer(self._hear_one(self._channel, rank, until)) for rank in range(1, self.world)]

    def _hear_one(self, channel: Channel, rank: int, until: float) -> bytes:
        data = commands.WORKING
        while data == commands.WORKING:
            left_s = until - monotonic_s()
            if left_s <= 0:
                raise CellLost(f"rank {rank} is still at work after its deadline")
            data = channel.receive(rank, min(SILENCE_S, left_s))
        return data

    def close(self) -> None:
        """Followers end with the leader's process; a hanging command is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)
