"""Actions on the trainer: every rank of the cell takes part through the crew."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.micro_batches import MicroBatches
from gyre_hpc.cell.pace import Pace
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.machines.cell import actions
from gyre_hpc.protocol import micro_batch
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory
from gyre_hpc.shell.host import Action
from gyre_hpc.train.checkpoint_folder import prune

Progress = Callable[[Any], None]


class TrainerActions:
    """Wake, sleep, load, init, zero, accumulate, apply, save, fit."""

    def __init__(self, crew: Crew, micro_batches: MicroBatches, folder: RunFolder, snapshot_url: str, pace: Pace, keep: int) -> None:
        self._crew, self._micro_batches, self._folder = crew, micro_batches, folder
        self._snapshot_url, self._pace, self._keep = snapshot_url, pace, keep

    def table(self) -> dict[type, Action]:
        return {
            actions.WakeTrainer: self.wake,
            actions.SleepTrainer: self.sleep,
            actions.LoadCheckpoint: self.load,
            actions.InitModel: self.init,
            actions.ZeroSum: self.zero,
            actions.FetchMicroBatch: self.fetch,
            actions.Accumulate: self.accumulate,
            actions.Apply: self.apply,
            actions.SaveCheckpoint: self.save,
            actions.Fit: self.fit,
        }

    async def wake(self, key: str, action: actions.WakeTrainer, progress: Progress) -> tuple[RankMemory, ...]:
        command = commands.Wake(action.version, action.restore_sum, self._snapshot_url, action.deadline_s)
        await self._crew.ask(command, action.deadline_s)
        await self._pace("wake")
        return tuple(answer.memory for answer in self._crew.answers)

    async def sleep(self, key: str, action: actions.SleepTrainer, progress: Progress) -> tuple[RankMemory, ...]:
        await self._crew.ask(commands.Sleep(action.keep_sum), action.deadline_s)
        await self._pace("sleep")
        return tuple(answer.memory for answer in self._crew.answers)

    async def load(self, key: str, action: actions.LoadCheckpoint, progress: Progress) -> None:
        folder = self._folder.root / action.folder
        await self._crew.ask(commands.Load(str(folder.absolute()), action.version), action.deadline_s)

    async def init(self, key: str, action: actions.InitModel, progress: Progress) -> None:
        await self._crew.ask(commands.Init(action.version), action.deadline_s)

    async def zero(self, key: str, action: actions.ZeroSum, progress: Progress) -> None:
        await self._crew.ask(commands.Zero(), action.deadline_s)

    async def fetch(self, key: str, action: actions.FetchMicroBatch, progress: Progress) -> None:
        await self._micro_batches.fetch(action.id, action.url, action.keep, action.deadline_s)

    async def accumulate(self, key: str, action: actions.Accumulate, progress: Progress) -> MicroBatchFacts:
        data = self._micro_batches.take(action.id)
        facts: MicroBatchFacts = await self._crew.ask(commands.Add(data), action.deadline_s)
        await self._pace("accumulate", lambda: micro_batch.decode(data).num_tokens)
        return facts

    async def apply(self, key: str, action: actions.Apply, progress: Progress) -> dict[str, float]:
        metrics: dict[str, float] = await self._crew.call(self._apply, action)
        await self._pace("apply")
        return metrics

    def _apply(self, action: actions.Apply) -> Any:
        if self._crew.own.scratch is None:
            raise RuntimeError(f"generation {action.generation} left no total")
        metrics = self._crew.run(commands.Step(action.ask.num_executions, action.ask.version), action.deadline_s)
        self._crew.own.scratch = None
        return metrics

    async def save(self, key: str, action: actions.SaveCheckpoint, progress: Progress) -> None:
        """Older checkpoints go once this one is whole."""
        target = self._folder.checkpoints / str(action.version)
        command = commands.Save(str(target.absolute()), json.dumps(action.state).encode())
        await self._crew.ask(command, action.deadline_s)
        await self._crew.call(prune, target.parent, self._keep)

    async def fit(self, key: str, action: actions.Fit, progress: Progress) -> dict[str, float]:
        data = [await self._micro_batches.get(url, action.deadline_s) for url in action.urls]
        loop = asyncio.get_running_loop()

        def tell(share: float) -> None:
            loop.call_soon_threadsafe(progress, share)

        self._crew.own.progress = tell
        metrics: dict[str, float] = await self._crew.ask(commands.FitAll(tuple(data), action.epochs, action.version), action.deadline_s)
        await self._pace("fit", lambda: action.epochs * sum(micro_batch.decode(one).num_tokens for one in data))
        return metrics
