"""What one rank does for a command: its trainer, its store, a sum kept while the trainer sleeps, the scratch of a commit."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.kv_rank import KvRank, without_pages
from gyre_hpc.cell.server_part import ServerPart
from gyre_hpc.cell.world import groups_built
from gyre_hpc.observability.cpu import cpu_seconds, own_cpu_s
from gyre_hpc.protocol import micro_batch
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.memory import measure
from gyre_hpc.transport.base import SnapshotStore

if TYPE_CHECKING:
    from gyre_hpc.engines.embedded.follower import EngineFollower


class Rank:
    """Lives in one thread. Every rank of a cell gets the same commands in the same order: some contain collectives."""

    def __init__(self, number: int, trainer: Trainer, store: SnapshotStore, cpu_s: Callable[[], float] = own_cpu_s) -> None:
        """cpu_s: CPU seconds of its process, or its share of them."""
        self.number, self.trainer, self.store, self._cpu_s = number, trainer, store, cpu_s
        self.scratch: Any = None
        """Leader: the reduced total that the next Step uses."""
        self.progress: Callable[[float], None] = lambda share: None
        self.kv: KvRank | None = None
        """Where this rank's engine has pages that can move."""
        self.engine: EngineFollower | None = None
        """Followers: this rank's part of the engine."""
        self.server: ServerPart | None = None
        """The first rank of another node than the leader's, where the engine is a server: that node's part of it."""
        self._kept: bytes | None = None
        """The cell's sum while the trainer sleeps; empty on followers. None: nothing is kept."""

    def do(self, command: commands.Command) -> Any:
        """Carry out one command; returns what the leader needs of it."""
        match command:
            case commands.Wake():
                return self._wake(command)
            case commands.Sleep(keep=keep):
                self._kept = self._sum_bytes() if keep else None
                return self.trainer.sleep()
            case commands.Zero():
                self._kept = self.scratch = None
                self.trainer.zero()
            case commands.Add(micro_batch=data):
                return self.trainer.accumulate(micro_batch.decode(data))
            case commands.SumBytes():
                return self._sum_bytes() if self._kept is None else self._kept
            case commands.TakeSum():
                return self.trainer.sum()
            case commands.Step(num_executions=num_executions, version=version):
                return self.trainer.apply(self.scratch, num_executions, version)
            case commands.FitAll(micro_batches=data, epochs=epochs, version=version):
                return self.trainer.fit([micro_batch.decode(one) for one in data], epochs, version, self.progress)
            case commands.Pull(version=version, source=source, deadline_s=deadline_s):
                self._pull(version, source, deadline_s)
            case commands.Save(folder=folder, state=state):
                self.trainer.save(Path(folder), json.loads(state))
            case commands.Load(folder=folder, version=version):
                return self.trainer.load(Path(folder), version)
            case commands.Init(version=version):
                self.trainer.init(version)
            case commands.Look():
                if self.engine is not None and self.engine.failure is not None:
                    raise RuntimeError(f"its part of the engine failed: {self.engine.failure!r}")
                if self.server is not None and (why := self.server.failure()):
                    raise RuntimeError(why)
            case commands.KvReady() | commands.KvOffer() | commands.KvFetch() | commands.KvWithdraw() | commands.KvEnd():
                return commands.Told(without_pages(command) if self.kv is None else self.kv.do(command))
        return None

    def answer(self, result: Any, error: str = "") -> commands.Answer:
        """How this rank is after a command that gave `result`."""
        memory = result if isinstance(result, RankMemory) else measure(self.number)
        told = bytes(result) if isinstance(result, commands.Told) else b""
        return commands.Answer(
            memory=memory,
            pid=os.getpid(),
            server_pids=self.server.pids() if self.server is not None else (),
            cpu_s=self._cpu_s() + cpu_seconds()[1],
            groups_built=groups_built(),
            snapshots=self.store.versions(),
            error=error,
            result=told,
        )

    def _wake(self, command: commands.Wake) -> RankMemory:
        self._pull(command.version, command.source, command.deadline_s)
        memory = self.trainer.wake(command.version)
        if command.restore:
            assert self._kept is not None, "no sum was kept"
            self.trainer.add_sum(self.trainer.sum_from_bytes(self._kept) if self.number == 0 else None)
        self._kept = None
        return memory

    def _pull(self, version: Version, source: str, deadline_s: float) -> None:
        if version not in self.store.versions():
            self.store.pull(version, (source,), deadline_s)

    def _sum_bytes(self) -> bytes:
        """Every rank takes part; the leader alone keeps the bytes."""
        data = self.trainer.sum_to_bytes()
        return data if self.number == 0 else b""
