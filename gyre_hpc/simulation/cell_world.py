"""What a cell's actions do. One machine room per incarnation: engine, trainer, store, fetched micro-batches."""

import contextlib
from typing import Any

from gyre_hpc.machines.cell import CellMachine, actions
from gyre_hpc.protocol.to_batch import MicroBatchFacts, RankMemory
from gyre_hpc.simulation.engine import Engine
from gyre_hpc.simulation.kv import Desk
from gyre_hpc.simulation.process import ActionFailed, Process, Running
from gyre_hpc.simulation.ranks import Ranks
from gyre_hpc.simulation.store import Store
from gyre_hpc.simulation.trainer import Trainer
from gyre_hpc.simulation.weights import CONFIGURATION, Content, Sum, Weights

_KEEP_CHECKPOINTS = 2


class CellWorld:
    def __init__(self, process: Process) -> None:
        self.process, self.sim = process, process.sim
        self.store = Store(self.sim.watch, process.name)
        self.trainer = Trainer(self.store)
        self.prefills = any(process.name == one for one, _ in self.sim.scenario.pair_names)
        """For its partner, which takes the calls."""
        self._prefiller = next((one for one, other in self.sim.scenario.pair_names if process.name == other), "")
        self.engine = Engine(process, self.sim.scenario.token_s, self._prefill_trouble if self._prefiller else None)
        self.ranks = Ranks(process.name, self.sim.scenario.ranks)
        self.desk = Desk(self)
        self.fetched: dict[str, Content] = {}
        process.on_death.append(self._gone)

    def handlers(self) -> dict[type, Any]:
        return {
            **self.desk.handlers(), actions.CloseAdmission: self._close, actions.OpenAdmission: self._open,
            actions.SleepEngine: self._sleep_engine, actions.WakeEngine: self._wake_engine, actions.UpdateEngineWeights: self._update_engine,
            actions.SleepTrainer: self._sleep_trainer, actions.WakeTrainer: self._wake_trainer, actions.PullSnapshot: self._pull,
            actions.LoadCheckpoint: self._load, actions.InitModel: self._init, actions.ZeroSum: self._zero,
            actions.FetchMicroBatch: self._fetch, actions.Accumulate: self._accumulate, actions.HandInSum: self._hand_in,
            actions.HostGroup: self._host, actions.Reduce: self._reduce, actions.AbortReduce: self._abort_reduce, actions.Apply: self._apply,
            actions.SaveCheckpoint: self._save, actions.Fit: self._fit, actions.Measure: self._measure,
        }  # fmt: skip

    def _prefill_trouble(self) -> str:
        """Why the partner computes no prompt for this cell now; empty: it does."""
        other = self.cell_at(self.process.addresses.get(self._prefiller, ""))
        if other is None:
            return f"{self._prefiller} does not answer"
        return "" if other.engine.version == self.engine.version else f"{self._prefiller} has {other.engine.version}"

    def _gone(self) -> None:
        for request in list(self.engine.live):
            request.is_over = True
            request.say(("error", ("CellLost", "connection reset")))

    def _after(self, running: Running, mean_s: float, work: Any) -> None:
        running.end_after(self.sim.kernel.short(mean_s), work)

    # engine

    def _close(self, running: Running, action: actions.CloseAdmission) -> None:
        def work() -> None:
            self.engine.term, self.engine.is_open = action.term, False

        self._after(running, 0.0005, work)

    def _open(self, running: Running, action: actions.OpenAdmission) -> None:
        def work() -> None:
            self.engine.term, self.engine.is_open = action.term, True

        self._after(running, 0.0005, work)

    def _sleep_engine(self, running: Running, action: actions.SleepEngine) -> None:
        def work() -> tuple[RankMemory, ...]:
            self.sim.watch.engine_sleeps(self)
            self.engine.sleep()
            return self.ranks.sleep_engine(running)

        self._after(running, 0.05, work)

    def _wake_engine(self, running: Running, action: actions.WakeEngine) -> None:
        def work() -> tuple[RankMemory, ...]:
            self.store.get(action.version)
            self.engine.wake(action.version)
            self.sim.watch.woke(self)
            return self.ranks.wake_engine(running)

        self._after(running, 0.08, work)

    def _update_engine(self, running: Running, action: actions.UpdateEngineWeights) -> None:
        def work() -> None:
            self.store.get(action.version)
            if self.engine.version is None:
                raise ActionFailed("RuntimeError", "the engine sleeps")
            self.engine.update(action.version)

        self._after(running, 0.03, work)

    # trainer

    def _sleep_trainer(self, running: Running, action: actions.SleepTrainer) -> None:
        def work() -> tuple[RankMemory, ...]:
            self.trainer.sleep(action.keep_sum)
            return self.ranks.sleep_trainer(running)

        self._after(running, 0.03, work)

    def _wake_trainer(self, running: Running, action: actions.WakeTrainer) -> None:
        def work() -> tuple[RankMemory, ...]:
            self.trainer.wake(action.version, action.restore_sum)
            self.sim.watch.woke(self)
            return self.ranks.wake_trainer(running)

        self._after(running, 0.08, work)

    def _load(self, running: Running, action: actions.LoadCheckpoint) -> None:
        def work() -> None:
            saved = self.sim.disk.checkpoint(action.folder)
            if saved is None:
                raise ActionFailed("FileNotFoundError", action.folder)
            self.trainer.begin_from(action.version, saved.weights)

        self._after(running, 0.1, work)

    def _init(self, running: Running, action: actions.InitModel) -> None:
        self._after(running, 0.1, lambda: self.trainer.begin_from(action.version, Weights(CONFIGURATION)))

    def _zero(self, running: Running, action: actions.ZeroSum) -> None:
        self._after(running, 0.002, self.trainer.zero)

    def _accumulate(self, running: Running, action: actions.Accumulate) -> None:
        self.sim.watch.accumulates(self, action.id)
        content = self.fetched.pop(action.id, None)
        seconds = self.sim.kernel.short(0.3)

        def work() -> MicroBatchFacts:
            if content is None:
                raise ActionFailed("KeyError", f"{action.id} was not fetched")
            self.trainer.accumulate(content)
            self.sim.watch.accumulated(self, content)
            return MicroBatchFacts(action.id, seconds, content.num_targets, 0.0, 0, 0.0, 0)

        running.end_after(seconds, work)

    def _apply(self, running: Running, action: actions.Apply) -> None:
        def work() -> dict[str, float]:
            self.sim.watch.applies(self, action)
            self.trainer.apply(action.ask.version)
            return {"grad_norm": 1.0}

        self._after(running, 0.05, work)

    def _save(self, running: Running, action: actions.SaveCheckpoint) -> None:
        weights = self.trainer.weights

        def write() -> None:
            self.sim.save_checkpoint(action.version, weights, action.state, _KEEP_CHECKPOINTS)

        def work() -> None:
            if self.sim.disk.is_full(self.process.name, self.sim.kernel.now):
                raise ActionFailed("StorageFull")
            write()

        running.half_done = write
        self._after(running, 0.08, work)

    def _fit(self, running: Running, action: actions.Fit) -> None:
        def work() -> dict[str, float]:
            contents = [self._content_at(url) for url in action.urls]
            executions = tuple(sorted({one for content in contents for one in content.executions}))
            self.trainer.begin_from(action.version, Weights(f"fit of {','.join(executions)}"))
            return {"loss": 1.0}

        self.process.later(0.2, lambda: running.progress(0.5))
        self._after(running, 0.5, work)

    # between cells

    def _pull(self, running: Running, action: actions.PullSnapshot) -> None:
        def work() -> None:
            for url in action.sources:
                other = self.cell_at(url)
                if other is not None and action.version in other.store.snapshots:
                    self.store.put(action.version, other.store.snapshots[action.version])
                    return
            raise ActionFailed("TransferFailed", f"nobody of {action.sources} gave {action.version}")

        # Slow enough that cells go over to a new version one after the other.
        running.end_after(self.sim.kernel.rng.uniform(0.03, 1.0), work)

    def _fetch(self, running: Running, action: actions.FetchMicroBatch) -> None:
        def work() -> None:
            content = self._content_at(action.url)
            self.fetched = {id: held for id, held in self.fetched.items() if id in action.keep} | {action.id: content}

        self._after(running, 0.02, work)

    def _hand_in(self, running: Running, action: actions.HandInSum) -> None:
        total = list(self.trainer.sum_bytes())

        def give() -> None:
            other = self.cell_at(action.url)
            if other is None:
                raise ActionFailed("TransferFailed", "the core's store does not answer")
            self.sim.watch.handed_in(self, action.hand_in, total)
            other.store.take_hand_in(action.update, action.hand_in, total)

        def half() -> None:
            with contextlib.suppress(ActionFailed):
                give()

        running.half_done = half
        self._after(running, 0.05, give)

    def _host(self, running: Running, action: actions.HostGroup) -> None:
        def work() -> str:
            address = f"{self.process.url}/{action.generation}"
            self.sim.groups.host(address, action.nonce, self.process.name)
            return address

        self._after(running, 0.02, work)

    def _reduce(self, running: Running, action: actions.Reduce) -> None:
        self.trainer.scratch = None
        parts = self.trainer.total

        def done(total: Sum) -> None:
            scratch = list(total)
            for cell, fence in action.accepted:
                held = self.store.held.get((action.update, cell, fence))
                if held is None:
                    raise ActionFailed("KeyError", f"no hand-in of {cell} under {fence}")
                scratch += held[1]
            self.trainer.scratch = scratch

        if action.world == 1:
            self._after(running, 0.02, lambda: done(parts))
        else:
            self.sim.groups.join(running, action, parts, done)

    def _abort_reduce(self, running: Running, action: actions.AbortReduce) -> None:
        for other in list(self.process.actions.values()):
            if isinstance(other.action, actions.Reduce) and other.action.generation == action.generation:
                self.sim.groups.leave(other.action.address, "aborted")
        self._after(running, 0.01, lambda: None)

    def _measure(self, running: Running, action: actions.Measure) -> None:
        def work() -> actions.Figures:
            if self.store.is_rotting and running.is_current and not running.must_fail and self._is_uncommitted():
                self.store.rot()
            if action.update >= 0:
                self.store.forget(action.update)
            held = tuple(hand_in for (update, _, _), (hand_in, _) in self.store.held.items() if update == action.update)
            engine = self.engine
            tokens = {"sampled": engine.sampled, "prefilled": engine.prefilled, "cached": engine.cached}
            return actions.Figures(
                snapshots=tuple(sorted(self.store.snapshots)), live_requests=len(engine.live), held=held, pids=(1,), tokens=tokens,
                kv=self.desk.facts(),
            )  # fmt: skip

        self._after(running, 0.004, work)

    def _is_uncommitted(self) -> bool:
        """What is lost behind a manifest, no manifest shows."""
        machine = self.process.machine
        return isinstance(machine, CellMachine) and machine.state.commit is None

    def cell_at(self, url: str) -> "CellWorld | None":
        other = self.sim.network.process_at(url)
        if other is None or other.paused or other.attempt != self.process.attempt or self.sim.network.is_cut(self.process.name, other.name):
            return None
        assert isinstance(other.world, CellWorld)
        return other.world

    def _content_at(self, url: str) -> Content:
        """GET of a micro-batch."""
        address, _, id = url.partition("/micro_batches/")
        other = self.sim.network.process_at(address)
        if other is None or other.paused or other.attempt != self.process.attempt or self.sim.network.is_cut(self.process.name, other.name):
            raise ActionFailed("TransferFailed", f"{address} does not answer")
        content: Content | None = other.world.contents.get(id)
        if content is None:
            raise ActionFailed("TransferFailed", f"404: no micro-batch {id}")
        return content
