"""Actions on the engine. Its methods run in the leader's loop; the other ranks acknowledge through the crew."""

from collections.abc import Callable
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.kv_actions import KvActions
from gyre_hpc.engines.base import Engine
from gyre_hpc.machines.cell import actions
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.shell.host import Action

Progress = Callable[[Any], None]


class EngineActions:
    """CloseAdmission, OpenAdmission, AbortLive, SleepEngine, WakeEngine, UpdateEngineWeights."""

    def __init__(self, engine: Engine, crew: Crew, kv: KvActions) -> None:
        self._engine, self._crew, self._kv = engine, crew, kv

    def table(self) -> dict[type, Action]:
        return {
            actions.CloseAdmission: self.close_admission,
            actions.OpenAdmission: self.open_admission,
            actions.AbortLive: self.abort_live,
            actions.SleepEngine: self.sleep,
            actions.WakeEngine: self.wake,
            actions.UpdateEngineWeights: self.update_weights,
        }

    async def close_admission(self, key: str, action: actions.CloseAdmission, progress: Progress) -> None:
        self._engine.close_admission(action.term)

    async def open_admission(self, key: str, action: actions.OpenAdmission, progress: Progress) -> None:
        self._engine.open_admission(action.term)

    async def abort_live(self, key: str, action: actions.AbortLive, progress: Progress) -> int:
        await self._engine.abort_all({one.call: one.cell for one in action.moved})
        return self._engine.num_live()

    async def sleep(self, key: str, action: actions.SleepEngine, progress: Progress) -> tuple[RankMemory, ...]:
        await self._kv.before_sleep(action.deadline_s)
        return await self._acknowledged(await self._engine.sleep(), action.deadline_s)

    async def wake(self, key: str, action: actions.WakeEngine, progress: Progress) -> tuple[RankMemory, ...]:
        memory = await self._acknowledged(await self._engine.wake(action.version), action.deadline_s)
        self._kv.after_wake()
        return memory

    async def update_weights(self, key: str, action: actions.UpdateEngineWeights, progress: Progress) -> None:
        await self._engine.update_weights(action.version)

    async def _acknowledged(self, own: list[RankMemory], deadline_s: float) -> tuple[RankMemory, ...]:
        """The engine's own figures, and those of the ranks that it does not run on."""
        if len(own) == self._crew.world:
            return tuple(own)
        await self._crew.ask(commands.Look(), deadline_s)
        return (*own, *(answer.memory for answer in self._crew.answers[len(own) :]))
