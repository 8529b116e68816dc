"""Action Measure: what the cell looks like now. Ranks are asked unless they are at work; then their last answer stands."""

from collections.abc import Callable
from typing import Any

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.engines.base import Engine
from gyre_hpc.errors import CellLost
from gyre_hpc.machines.cell import actions
from gyre_hpc.observability.cpu import cpu_seconds_of
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import KvFacts
from gyre_hpc.transport.base import SnapshotStore


class Looker:
    def __init__(self, crew: Crew, engine: Engine, store: SnapshotStore) -> None:
        self._crew, self._engine, self._store = crew, engine, store

    async def measure(self, key: str, action: actions.Measure, progress: Callable[[Any], None]) -> actions.Figures:
        """Raises CellLost, naming the reason, when the engine is broken or a rank does not answer: such a cell is of no use."""
        failure = self._engine.failure()
        if failure is not None:
            raise CellLost(failure)
        if self._crew.world == 1:
            answers: tuple[commands.Answer, ...] = (self._crew.own.answer(None),)
        else:
            if not self._crew.is_busy:
                await self._crew.ask(commands.Look(), action.deadline_s)
            answers = self._crew.answers
        if action.update >= 0:
            self._store.forget(action.update)
        engine_pids = self._engine.pids()
        return actions.Figures(
            snapshots=_on_every_rank(self._store.versions(), answers),
            live_requests=self._engine.num_live(),
            held=tuple(hand_in for hand_in, _ in self._store.held(action.update).values()),
            pids=tuple(answer.pid for answer in answers),
            engine_pids=(*engine_pids, *(pid for answer in answers for pid in answer.server_pids)),
            groups_built=sum(answer.groups_built for answer in answers),
            tokens=self._engine.counters(),
            curve=tuple((float(running), speed) for running, speed in sorted(self._engine.curve().items())),
            cpu_s=sum(answer.cpu_s for answer in answers) + cpu_seconds_of(engine_pids),
            kv=KvFacts(self._engine.capabilities.kv, self._engine.kv.free_tokens() if self._engine.kv else 0),
        )


def _on_every_rank(own: tuple[Version, ...], answers: tuple[commands.Answer, ...]) -> tuple[Version, ...]:
    """A version that a rank lacks is of no use to the cell, and is pulled again. `own` is newer than the first answer."""
    return tuple(version for version in own if all(version in answer.snapshots for answer in answers[1:]))
