"""Ground truth of training: a version is one set of weights; an update is made of its batch exactly once; nobody is trained twice."""

from typing import TYPE_CHECKING, Any

from gyre_hpc.config.schema import SchedulerMode, Staleness
from gyre_hpc.machines.batch.records import CommitIntended
from gyre_hpc.machines.cell.actions import Apply
from gyre_hpc.protocol.identity import ExecutionId, Version
from gyre_hpc.protocol.supervision import SaveAnswer
from gyre_hpc.protocol.to_batch import HandIn
from gyre_hpc.protocol.to_cell import ApplyOrder
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.watch_calls import CallTruth
from gyre_hpc.simulation.weights import CONFIGURATION, Content, Sum, Weights, ids_of

if TYPE_CHECKING:
    from gyre_hpc.simulation.run import Simulation


class TrainingTruth:
    def __init__(self, sim: "Simulation", calls: CallTruth) -> None:
        self._sim, self._calls = sim, calls
        self.versions: dict[Version, Weights] = {}
        """Whatever was called by this name, anywhere in the run."""
        self._intended: dict[str, tuple[CommitIntended, list[Content], set[str]]] = {}
        """Manifest hash -> the intent, the contents its controller had prepared, members of its groups."""

    def made(self, cell: str, version: Version, weights: Weights) -> None:
        known = self.versions.setdefault(version, weights)
        if known != weights:
            raise Violation(f"{cell}: version {version} names two sets of weights: {known} and {weights}")

    def intended(self, process: Process, record: CommitIntended) -> None:
        state = process.machine.state  # type: ignore[union-attr]
        ids = set(state.batch.ledger.ids())
        contents = [content for id, content in process.world.contents.items() if id in ids]
        members = {member for id in record.groups for member in state.groups.groups[id].members}
        self._intended[record.manifest_hash] = (record, contents, members)

    def ordered_to_apply(self, ask: ApplyOrder) -> None:
        if ask.manifest_hash not in self._intended:
            raise Violation(f"update {ask.update}: to be applied before the intent is durable")

    def last_save(self, process: Process, answer: SaveAnswer) -> None:
        """An orderly stop is told that it need not wait (any longer): then a next attempt must find the newest version."""
        state, sim = process.machine.state, self._sim  # type: ignore[union-attr]
        sim.counts["last_saves_waited_for"] += answer.waits_s > 0
        if answer.waits_s > 0 or answer.reason != f"{state.version} is saved" or state.version.step == 0 or process.attempt < sim.attempt:
            return
        newest = sim.disk.newest()
        if newest is None or sim.disk.checkpoints[newest].version.step != state.version.step:
            raise Violation(f"a stop is told that {state.version} is saved; the newest checkpoint is {newest}")

    def applies(self, cell: Any, action: Apply) -> None:
        """Just before the core makes its step."""
        ask, trainer = action.ask, cell.trainer
        scratch: Sum = trainer.scratch or []
        weights: Weights = trainer.weights
        ids = ids_of(scratch)
        self.ordered_to_apply(ask)
        record, contents, members = self._intended[ask.manifest_hash]
        if len(ids) != len(set(ids)) or {id(g.content) for g in scratch} != {id(content) for content in contents}:
            raise Violation(f"update {ask.update}: the sum {sorted(ids)} is not the batch exactly once")
        if any(gradient.at != weights or gradient.content.update != ask.update for gradient in scratch):
            raise Violation(f"update {ask.update}: gradients of other weights are in the sum")
        if trainer.optimizer != weights:
            raise Violation(f"update {ask.update}: the optimizer belongs to {trainer.optimizer}, the parameters are {weights}")
        if ask.version.step != len(weights.steps) + 1 or ask.update != len(weights.steps):
            raise Violation(f"update {ask.update}: leads to {ask.version} from weights of {len(weights.steps)} steps")
        if self._sim.scenario.warm and weights.origin == CONFIGURATION:
            raise Violation(f"update {ask.update}: the run has lost its warm start")
        executions = {one for gradient in scratch for one in gradient.content.executions}
        if not executions <= members or max(1, len(executions)) != ask.num_executions:
            raise Violation(f"update {ask.update}: {len(executions)} executions, divided by {ask.num_executions}")
        twice = executions & {one for step in weights.steps for one in step}
        if twice:
            raise Violation(f"update {ask.update}: trained twice: {sorted(twice)}")
        if unsaid := [one for one in sorted(executions) if not ask.consumed.holds(one)]:
            raise Violation(f"update {ask.update}: the checkpoint will not say that it consumed {unsaid}")
        self._staleness(ask.update, record, members)
        self._sim.counts["applies"] += 1

    def _staleness(self, update: int, record: CommitIntended, members: set[str]) -> None:
        scenario = self._sim.scenario
        if scenario.staleness is Staleness.soft and scenario.mode is not SchedulerMode.colocate:
            return
        for group in record.groups:
            steps = [
                version.step
                for execution, version in self._calls.first_versions.items()
                if execution in members and ExecutionId.parse(execution).group_id == group
            ]
            if steps and update - min(steps) > scenario.max_staleness:
                raise Violation(f"update {update}: group {group} began at step {min(steps)}, staleness bound {scenario.max_staleness}")

    def accumulates(self, cell: Any, id: str) -> None:
        """A cell begins to add a micro-batch to its sum."""
        state = cell.process.machine.state
        lease, order = (state.total.update, state.total.fence), (state.order.update, state.order.fence)
        if lease != order:
            raise Violation(f"{cell.process.name} accumulates {id} for {lease}, its lease is expired: {order} holds")

    def accumulated(self, cell: Any, content: Content) -> None:
        self._sim.counts["accumulated"] += 1
        if cell.process.name != "cell-0":
            self._sim.counts["accumulated_by_satellites"] += 1

    def handed_in(self, cell: Any, hand_in: HandIn, total: Sum) -> None:
        if sorted(hand_in.ids) != sorted(ids_of(total)):
            raise Violation(f"{cell.process.name} hands in {sorted(ids_of(total))} as {sorted(hand_in.ids)}")
        self._sim.counts["hand_ins"] += 1

    def saved(self, version: Version, weights: Weights, state: dict[str, Any]) -> None:
        if weights is None or self.versions.get(version) != weights:
            raise Violation(f"checkpoint {version} holds other weights than that version")
        consumed = TrainGroups.read(state["consumed"])
        if unsaid := [one for step in weights.steps for one in step if not consumed.holds(one)]:
            raise Violation(f"checkpoint {version} does not say that it consumed {unsaid[:3]}")

    def judge(self, state: Any) -> None:
        """The weights the run ends with."""
        scenario = self._sim.scenario
        final = self.versions.get(state.version)
        if final is None or len(final.steps) != scenario.updates:
            raise Violation(f"the run ends with {state.version}, which is {final}")
        executions = [one for step in final.steps for one in step]
        if len(executions) != len(set(executions)):
            raise Violation(f"trained twice on the way to {state.version}: {sorted(executions)}")
        self._sim.counts["executions_trained"] += len(executions)
