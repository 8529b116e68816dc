"""Actions PrepareGroup, PrepareWarm and ForgetMicroBatches, and the endpoint where cells fetch micro-batches."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web

from gyre_hpc.config.schema import Config
from gyre_hpc.control.journal_tail import JournalTail
from gyre_hpc.errors import GyreError
from gyre_hpc.machines.batch import actions
from gyre_hpc.protocol.micro_batch import MicroBatch, encode
from gyre_hpc.trajectory.base import Call, ScoredExecution
from gyre_hpc.trajectory.prepare import PrepareSettings, prepare_group, prepare_warm_start
from gyre_hpc.trajectory.tree import CallTree


class JournalIncomplete(GyreError):
    """Some execution's last records are not in the journal yet; the machine asks again."""


class Preparing:
    """Holds the micro-batches of the open batch as bytes. Work runs in a thread, one group at a time."""

    def __init__(self, config: Config, journal: JournalTail) -> None:
        self._settings = PrepareSettings.of(config.algo, config.trainer, config.seed)
        self._warm_settings = replace(self._settings, micro_batch_tokens=config.warm_start.batch_tokens)
        self._journal = journal
        self._bytes: dict[str, bytes] = {}
        self._busy = asyncio.Lock()

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/micro_batches/{id}", self._get)

    async def prepare_group(self, key: str, action: actions.PrepareGroup, progress: Callable[[Any], None]) -> actions.PreparedGroup:
        """Journal -> micro-batches of one complete group."""
        return await self._in_thread(self._prepare_group, action)

    async def prepare_warm(self, key: str, action: actions.PrepareWarm, progress: Callable[[Any], None]) -> actions.PreparedGroup:
        """Journal -> cross-entropy micro-batches."""
        return await self._in_thread(self._prepare_warm, action)

    async def forget(self, key: str, action: actions.ForgetMicroBatches, progress: Callable[[Any], None]) -> None:
        """Free what earlier updates consumed; the warm start's too, once training has begun."""
        self._bytes = {id: data for id, data in self._bytes.items() if not is_over(id, action.update)}
        await self._in_thread(self._forget, action)

    def _forget(self, action: actions.ForgetMicroBatches) -> None:
        # What was never looked at is known by name now, and read no more.
        self._journal.poll()
        for execution in action.executions:
            self._journal.forget(execution)

    async def _in_thread(self, work: Callable[[Any], Any], action: Any) -> Any:
        async with self._busy:
            return await asyncio.get_running_loop().run_in_executor(None, work, action)

    def _prepare_group(self, action: actions.PrepareGroup) -> actions.PreparedGroup:
        calls, damaged = self._calls([ended.execution for ended in action.ended], action.final)
        scored = [
            ScoredExecution(
                execution=ended.execution,
                state="infra_error" if ended.execution in damaged else ended.state.value,
                score=None if ended.execution in damaged else ended.score,
                num_targets=0,
            )
            for ended in action.ended
        ]
        group = prepare_group(calls, scored, self._settings, action.update, action.version, action.first_ordinal)
        return actions.PreparedGroup(
            micro_batches=self._keep(group.micro_batches),
            num_executions=group.num_trained,
            num_branching=sum(execution.is_branching for execution in group.executions),
            num_trained_tokens=group.num_targets,
            num_trajectories=sum(execution.num_trajectories for execution in group.executions),
            damaged=tuple(sorted(damaged.items())),
        )

    def _prepare_warm(self, action: actions.PrepareWarm) -> actions.PreparedGroup:
        calls, damaged = self._calls(action.executions, action.final)
        micro_batches = prepare_warm_start(calls, self._warm_settings, action.version)
        for execution in calls:
            self._journal.forget(execution)
        return actions.PreparedGroup(
            micro_batches=self._keep(micro_batches),
            num_executions=len(calls),
            num_branching=0,
            num_trained_tokens=sum(micro_batch.num_targets for micro_batch in micro_batches),
            damaged=tuple(sorted(damaged.items())),
        )

    def _calls(self, executions: Any, final: bool) -> tuple[dict[str, list[Call]], dict[str, str]]:
        """Finished calls by execution, and why the journal of some cannot be used. Raises JournalIncomplete unless `final`."""
        self._journal.poll()
        journal = self._journal
        open_ones = [execution for execution in executions if journal.has_calls(execution) and not journal.has_ended(execution)]
        if open_ones and not final:
            raise JournalIncomplete(f"{len(open_ones)} executions without their last record, {open_ones[0]} the first")
        calls: dict[str, list[Call]] = {}
        damaged: dict[str, str] = {}
        for execution in executions:
            try:
                calls[execution] = journal.calls(execution)
                CallTree(calls[execution])
            except ValueError as error:
                calls[execution], damaged[execution] = [], str(error)
        return calls, damaged

    def _keep(self, micro_batches: tuple[MicroBatch, ...]) -> tuple[actions.MicroBatchEntry, ...]:
        for micro_batch in micro_batches:
            self._bytes[micro_batch.id] = encode(micro_batch)
        return tuple(actions.MicroBatchEntry(one.id, one.num_tokens, one.num_targets) for one in micro_batches)

    async def _get(self, request: web.Request) -> web.Response:
        data = self._bytes.get(request.match_info["id"])
        if data is None:
            return web.Response(status=404, text="no such micro-batch: it was consolidated or never prepared")
        return web.Response(body=data, content_type="application/msgpack")


def is_over(id: str, update: int) -> bool:
    """A micro-batch of an update before `update`, or of the warm start."""
    number = id.partition(":")[0]
    return number == "warm" or int(number) < update
