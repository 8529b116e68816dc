"""What must hold, checked at the moment it could break. The parts: ground truth of calls, of training, of documents.

Every promise has a name in the text of its Violation. Checks cost O(1) or O(what the event is about).
"""

from typing import TYPE_CHECKING, Any

from gyre_hpc.machines.base import Effect, Failed, Input, Progressed
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.giving_up import NO_UNIT
from gyre_hpc.machines.batch.phases import NOTHING_TO_FIT
from gyre_hpc.machines.batch.records import CommitIntended, ExecutionEnded
from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.machines.call.actions import EngineAttempt
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.protocol.supervision import SaveAnswer
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.simulation.engine import Engine
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.kv import Transfer
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.watch_calls import CallTruth
from gyre_hpc.simulation.watch_documents import DocumentTruth
from gyre_hpc.simulation.watch_training import TrainingTruth
from gyre_hpc.simulation.watch_waits import WaitTruth
from gyre_hpc.simulation.weights import Content

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation

_TOKEN_FAULTS = frozenset(purpose + fault for purpose in ("", "eval_", "warm_") for fault in ("resampled", "lost", "digest_mismatch"))


class Watch:
    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._calls = CallTruth(sim)
        self._training = TrainingTruth(sim, self._calls)
        self._documents = DocumentTruth()
        self.at_rest = WaitTruth(sim).at_rest
        self._finished: tuple[int, str] | None = None
        self.attempts = self._calls.attempts
        self.says = self._calls.says
        self.renders = self._calls.renders
        self.replies = self._calls.replies
        self.answered = self._calls.answered
        self.cancelled = self._calls.cancelled
        self.continued = self._calls.continued
        self.asks = self._calls.asks
        self.inherits = self._calls.inherits
        self.made = self._training.made
        self.applies = self._training.applies
        self.accumulates = self._training.accumulates
        self.accumulated = self._training.accumulated
        self.handed_in = self._training.handed_in
        self.saved = self._training.saved

    def handled(self, process: Process, told: Input, effects: list[Effect]) -> None:
        """After every event of every machine."""
        machine: Any = process.machine
        if process.kind == "controller":
            self._documents.controller(process, machine.state)
        elif process.kind == "gateway":
            if isinstance(told, Progressed):
                self._received(process, machine, told)
            elif isinstance(told, Failed):
                self._calls.failed(process, told.key)
            tokens = machine._shard.tokens
            if not _TOKEN_FAULTS.isdisjoint(tokens) and any(tokens.get(fault) for fault in _TOKEN_FAULTS):
                raise Violation(f"{process.name}: tokens resampled, lost or not what the engine saw: {dict(tokens)}")

    def _received(self, process: Process, machine: GatewayMachine, told: Progressed) -> None:
        live = machine._live(told.key)
        if live is not None and live.attempt_key == told.key:
            self._calls.receives(process, live.call, told.item.start + len(told.item.ids) // 4)

    def sent(self, sender: Process, to: str, message: Any) -> None:
        self._documents.sent(sender, to, message)
        if isinstance(message, Order) and message.apply is not None:
            self._training.ordered_to_apply(message.apply)
        elif isinstance(message, SaveAnswer):
            self._training.last_save(sender, message)

    def durable(self, process: Process, record: Any) -> None:
        if process.kind == "gateway":
            self._calls.durable(process, record)
        elif isinstance(record, CommitIntended):
            self._training.intended(process, record)
        if process.attempt < self._sim.attempt:
            # Written behind the back of the attempt that lives: nobody reads it.
            return
        self._documents.durable(process, record)
        self._sim.counts["executions"] += isinstance(record, ExecutionEnded)

    def listens(self, process: Process, attempt: int) -> None:
        """A process takes a message of a start of the run."""
        if attempt != process.attempt:
            raise Violation(f"{process.name} of attempt {process.attempt} listens to attempt {attempt}")

    def admitted(self, process: Process, engine: Engine, attempt: EngineAttempt) -> None:
        self._sim.counts["attempts"] += 1
        if engine.version is None or not engine.is_open:
            raise Violation(f"{process.name}: {attempt.call} is parked in front of a closed engine")
        if process.kind == "cell" and process.world.prefills:
            raise Violation(f"{process.name}: {attempt.call} is sent to a cell that only prefills")
        if attempt.term != engine.term:
            raise Violation(f"{process.name}: {attempt.call} was sent under term {attempt.term} and is taken under {engine.term}")

    def reuses(self, process: Process, engine: Engine, pages: list[int]) -> None:
        """An engine goes on from pages that were computed before."""
        self._sim.counts["kv_pages_reused"] += len(pages)
        wrong = {engine.books.oldest(page) for page in pages} - {engine.version}
        if wrong:
            raise Violation(f"{process.name} serves {engine.version} from KV of {sorted(map(str, wrong))}")

    def reads(self, transfer: Transfer) -> None:
        """A target reads the next page of a transfer."""
        source = transfer.source
        if source.engine.books is not transfer.books or not transfer.books.pages.blocks(transfer.lease):
            target = transfer.target.process.name
            raise Violation(f"{source.process.name}: a page is freed under its lease, {target} still reads it")
        self.writes(transfer)

    def writes(self, transfer: Transfer) -> None:
        """The target keeps what it has read."""
        target = transfer.target
        if target.engine.books is not transfer.their_books:
            raise Violation(f"{target.process.name}: a page is freed under its reservation, KV is still written to it")

    def woke(self, cell: Any) -> None:
        if cell.engine.version is not None and cell.trainer.version is not None:
            raise Violation(f"{cell.process.name}: engine and trainer are awake together")

    def engine_sleeps(self, cell: Any) -> None:
        if cell.engine.live:
            raise Violation(f"{cell.process.name}: the engine sleeps with {len(cell.engine.live)} live requests")

    def begins(self, process: Process, begin: Begin) -> None:
        self._documents.begins(begin)

    def refused(self, execution: str, status: int, code: str) -> None:
        self._sim.counts[f"refused_{code}" if status else "connections_lost"] += 1
        if code in ("previous_response_not_found", "not_found"):
            raise Violation(f"{execution}: a stored answer is not found")

    def prepared(self, micro_batch: MicroBatch, content: Content) -> None:
        self._sim.counts["micro_batches_prepared"] += 1

    def folded(self, calls: dict[str, Any], damaged: dict[str, str]) -> None:
        if damaged:
            raise Violation(f"journal contradicts itself: {damaged}")

    def finished(self, code: int, reason: str) -> None:
        """The controller says that the run is over."""
        controller = self._sim.processes["controller"].machine
        assert isinstance(controller, BatchMachine)
        state = controller.state
        self._finished = (code, reason)
        if code and reason.startswith(NOTHING_TO_FIT):
            members = [member for group in state.groups.of_purpose("warm") for member in group.members]
            self._calls.left_nothing(members)
            self._sim.counts["gave_up_rightly"] += 1
            return
        if code and reason.startswith(NO_UNIT) and self._no_pair_is_whole():
            self._sim.counts["gave_up_rightly"] += 1
            return
        if code:
            raise Violation(f"the run gives up: {reason}")
        if state.groups.live:
            raise Violation(f"executions without an end: {sorted(state.groups.live)[:4]}")
        self._training.judge(state)

    def _no_pair_is_whole(self) -> bool:
        """Of each one a cell does not live."""
        dead = {name for name, process in self._sim.processes.items() if process.kind == "cell" and not process.alive}
        return all(dead.intersection(pair) for pair in self._sim.scenario.pair_names)

    def judge(self) -> None:
        """At the end of the run."""
        if self._sim.ended is None or self._finished is None:
            raise Violation(f"the supervisor ended the run: {self._sim.ended}")
        if self._sim.ended[0] != self._finished[0]:
            raise Violation(f"the run ended with {self._sim.ended}, its controller with {self._finished}")
