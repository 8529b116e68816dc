"""What the controller's actions do: the real fold and the real preparation, over the durable part of the journals."""

from typing import Any

from gyre_hpc.machines.batch import actions
from gyre_hpc.machines.batch.satellites import KeepSatellites
from gyre_hpc.protocol.journal import execution_of
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.simulation.network import plain
from gyre_hpc.simulation.process import ActionFailed, Process, Running
from gyre_hpc.simulation.weights import Content
from gyre_hpc.trajectory.base import ScoredExecution
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.prepare import PrepareSettings, prepare_group, prepare_warm_start
from gyre_hpc.trajectory.tree import CallTree

_SETTINGS = PrepareSettings(micro_batch_tokens=40)


class ControllerWorld:
    def __init__(self, process: Process) -> None:
        self.process, self.sim = process, process.sim
        self.contents: dict[str, Content] = {}
        self._fold = JournalFold()
        self._offsets: dict[tuple[str, int], int] = {}

    def handlers(self) -> dict[type, Any]:
        return {
            actions.FindCheckpoint: self._find, actions.FindWarmStart: self._find_warm, actions.StoreWarmStart: self._store_warm,
            actions.PrepareGroup: self._prepare, actions.PrepareWarm: self._prepare_warm, actions.ForgetMicroBatches: self._forget,
            actions.WriteStatus: self._status, KeepSatellites: self._satellites,
        }  # fmt: skip

    def _after(self, running: Running, mean_s: float, work: Any) -> None:
        running.end_after(self.sim.kernel.short(mean_s), work)

    def _status(self, running: Running, action: actions.WriteStatus) -> None:
        def work() -> None:
            if self.sim.disk.is_full(self.process.name, self.sim.kernel.now):
                raise ActionFailed("StorageFull")

        plain(action.status)
        self._after(running, 0.005, work)

    def _satellites(self, running: Running, action: KeepSatellites) -> None:
        self._after(running, 0.05, lambda: self.sim.jobs.keep(action))

    def _find(self, running: Running, action: actions.FindCheckpoint) -> None:
        def work() -> actions.Checkpoint | None:
            folder = self.sim.disk.newest()
            if folder is None:
                return None
            saved = self.sim.disk.checkpoints[folder]
            state = saved.state
            return actions.Checkpoint(
                folder=folder, version=saved.version, update=int(state["update"]), manifest_hash=str(state["manifest_hash"]),
                consumed=TrainGroups.read(state["consumed"]), counters=dict(state["counters"]),
            )  # fmt: skip

        self._after(running, 0.03, work)

    def _find_warm(self, running: Running, action: actions.FindWarmStart) -> None:
        def work() -> actions.Checkpoint | None:
            saved = self.sim.disk.warm_start
            if saved is None:
                return None
            # As control/checkpoints.py: into the run folder, unless there is one by that name.
            folder = f"checkpoints/{saved.version}"
            self.sim.disk.checkpoints.setdefault(folder, saved)
            return actions.Checkpoint(folder=folder, version=saved.version, update=-1)

        self._after(running, 0.02, work)

    def _store_warm(self, running: Running, action: actions.StoreWarmStart) -> None:
        def work() -> None:
            saved = self.sim.disk.checkpoints.get(f"checkpoints/{action.version}")
            if saved is None:
                raise ActionFailed("FileNotFoundError", f"checkpoints/{action.version}")
            self.sim.disk.warm_start = saved

        self._after(running, 0.01, work)

    def _prepare(self, running: Running, action: actions.PrepareGroup) -> None:
        def work() -> actions.PreparedGroup:
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
            group = prepare_group(calls, scored, _SETTINGS, action.update, action.version, action.first_ordinal)
            return actions.PreparedGroup(
                micro_batches=self._keep(group.micro_batches, action.version), num_executions=group.num_trained,
                num_branching=sum(one.is_branching for one in group.executions), num_trained_tokens=group.num_targets,
                damaged=tuple(sorted(damaged.items())),
            )  # fmt: skip

        self._after(running, 0.02, work)

    def _prepare_warm(self, running: Running, action: actions.PrepareWarm) -> None:
        def work() -> actions.PreparedGroup:
            calls, damaged = self._calls(action.executions, action.final)
            micro_batches = prepare_warm_start(calls, _SETTINGS, action.version)
            for execution in calls:
                self._fold.forget(execution)
            return actions.PreparedGroup(
                micro_batches=self._keep(micro_batches, action.version), num_executions=len(calls), num_branching=0,
                num_trained_tokens=sum(one.num_targets for one in micro_batches), damaged=tuple(sorted(damaged.items())),
            )  # fmt: skip

        self._after(running, 0.03, work)

    def _forget(self, running: Running, action: actions.ForgetMicroBatches) -> None:
        def work() -> None:
            self.contents = {id: held for id, held in self.contents.items() if not is_over(id, action.update)}
            for execution in action.executions:
                self._fold.forget(execution)

        self._after(running, 0.005, work)

    def _keep(self, micro_batches: tuple[MicroBatch, ...], version: Any) -> tuple[actions.MicroBatchEntry, ...]:
        for one in micro_batches:
            executions = tuple(sorted({sequence.execution for sequence in one.sequences}))
            content = Content(one.id, one.update, version, executions, one.num_tokens, one.num_targets)
            self.contents[one.id] = content
            self.sim.watch.prepared(one, content)
        return tuple(actions.MicroBatchEntry(one.id, one.num_tokens, one.num_targets) for one in micro_batches)

    def _calls(self, executions: Any, final: bool) -> tuple[dict[str, Any], dict[str, str]]:
        """As control/preparing.py."""
        self._poll()
        known = set(self._fold.executions())
        if not final and any(execution in known and not self._fold.has_ended(execution) for execution in executions):
            raise ActionFailed("JournalIncomplete", "an execution without its last record")
        calls: dict[str, Any] = {}
        damaged: dict[str, str] = {}
        for execution in executions:
            try:
                calls[execution] = self._fold.execution(execution)
                CallTree(calls[execution])
            except ValueError as error:
                calls[execution], damaged[execution] = [], str(error)
        self.sim.watch.folded(calls, damaged)
        return calls, damaged

    def _poll(self) -> None:
        for key, records in self.sim.disk.journals():
            start = self._offsets.get(key, 0)
            for record in records[start:]:
                if not execution_of(record).startswith("eval-"):
                    self._fold.add(record, key[1])
            self._offsets[key] = len(records)


def is_over(id: str, update: int) -> bool:
    """As control/preparing.py: a micro-batch of an earlier update, or of the warm start."""
    number = id.partition(":")[0]
    return number == "warm" or int(number) < update
