"""Complete groups and warm starts -> micro-batches: the one entry of this room for the controller.

Steps: tree -> admission (|T_e|) -> advantage of the group -> sequences -> micro-batches. All that a micro-batch needs is
known when its group is complete; |S| is not, so the caller adds up `num_trained` over the batch and hands it to the core.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gyre_hpc.config.schema import Advantage, AlgoConfig, TrainerConfig
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.micro_batch import MicroBatch
from gyre_hpc.trajectory.admission import Admission, admit
from gyre_hpc.trajectory.advantage import COUNTED_STATES, group_advantages, scores_of, shuffled_advantages
from gyre_hpc.trajectory.base import Call, ScoredExecution
from gyre_hpc.trajectory.packing import Packed, pack, sequences_of
from gyre_hpc.trajectory.tree import CallTree


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareSettings:
    """What of the configuration decides here."""

    j_max: int = 5
    micro_batch_tokens: int = 2048
    advantage: Advantage = Advantage.grpo
    shuffle_rewards: bool = False
    seed: int = 0
    """Of the run; with it `shuffle_rewards` deals the same way again."""

    @classmethod
    def of(cls, algo: AlgoConfig, trainer: TrainerConfig, seed: int) -> "PrepareSettings":
        """From the composed configuration."""
        return cls(
            j_max=algo.j_max,
            micro_batch_tokens=trainer.micro_batch_tokens,
            advantage=algo.advantage,
            shuffle_rewards=algo.shuffle_rewards,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedExecution:
    """What became of one execution of the group."""

    execution: str
    state: str
    score: float | None
    """As the runner gave it, also under `shuffle_rewards`."""
    advantage: float
    """0 when it is not trained."""
    num_targets: int
    """|T_e|; 0 when it is not trained."""
    num_trajectories: int
    """Admitted, at most J_max."""
    num_leaves: int
    """Before admission."""
    is_branching: bool
    oldest_version: Version | None
    """Oldest version any of its tokens was sampled with; None without tokens."""
    num_malformed: int
    """Tool calls that could not be parsed."""

    @property
    def is_trained(self) -> bool:
        """Whether it belongs to S."""
        return self.num_targets > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedGroup:
    """A complete group, ready for the ledger."""

    micro_batches: tuple[MicroBatch, ...]
    executions: tuple[PreparedExecution, ...]
    """In the order given, those not trained included."""
    num_trained: int
    """Executions the group adds to |S|; zero-variance groups count."""
    num_tokens: int
    """Of all micro-batches, context included."""
    num_targets: int
    num_on_policy: int
    """Targets sampled with the update's version on KV of no older one."""
    target_versions: tuple[tuple[Version, int], ...]
    """(version, targets sampled with it), oldest first: the staleness of what is trained."""
    has_spread: bool
    """False: all scores equal, so the group teaches nothing."""


def prepare_group(
    calls_by_execution: Mapping[str, Sequence[Call]],
    scored: Sequence[ScoredExecution],
    settings: PrepareSettings,
    update: int,
    version: Version,
    first_ordinal: int,
) -> PreparedGroup:
    """One complete group -> micro-batches `<update>:<first_ordinal>` and on.

    `scored`: every execution of the group, ended; `num_targets` of the input is not read. Executions without calls in
    `calls_by_execution` count in the baseline and train nothing. Raises ValueError for calls that form no tree.
    """
    scores = scores_of(scored)
    if settings.shuffle_rewards:
        advantages = shuffled_advantages(scores, settings.advantage, f"{settings.seed}/{update}")
    else:
        advantages = group_advantages(scores, settings.advantage)
    packed: list[Packed] = []
    executions: list[PreparedExecution] = []
    versions: dict[Version, int] = {}
    for one in scored:
        tree = CallTree(calls_by_execution.get(one.execution, ()))
        admission = admit(tree, settings.j_max) if one.execution in advantages else Admission(trajectories=(), num_targets=0)
        advantage = advantages.get(one.execution, 0.0)
        packed += sequences_of(one.execution, tree, admission, advantage, version)
        _count_versions(versions, tree, admission)
        executions.append(_facts(one, tree, admission, advantage))
    micro_batches = pack(
        packed,
        budget=settings.micro_batch_tokens,
        prefix=str(update),
        update=update,
        version=version,
        first_ordinal=first_ordinal,
        loss="policy",
    )
    return PreparedGroup(
        micro_batches=micro_batches,
        executions=tuple(executions),
        num_trained=sum(one.is_trained for one in executions),
        num_tokens=sum(one.num_tokens for one in packed),
        num_targets=sum(one.num_targets for one in packed),
        num_on_policy=sum(one.num_on_policy for one in packed),
        target_versions=tuple(sorted(versions.items())),
        has_spread=any(advantages.values()),
    )


def prepare_warm_start(
    calls_by_execution: Mapping[str, Sequence[Call]], settings: PrepareSettings, version: Version, *, first_ordinal: int = 0
) -> tuple[MicroBatch, ...]:
    """Scripted executions -> cross-entropy micro-batches `warm:<ordinal>`; every execution has weight 1, advantage 1."""
    packed: list[Packed] = []
    for execution, calls in calls_by_execution.items():
        tree = CallTree(calls)
        packed += sequences_of(execution, tree, admit(tree, settings.j_max), 1.0, version)
    return pack(
        packed,
        budget=settings.micro_batch_tokens,
        prefix="warm",
        update=version.step,
        version=version,
        first_ordinal=first_ordinal,
        loss="cross_entropy",
    )


def _facts(one: ScoredExecution, tree: CallTree, admission: Admission, advantage: float) -> PreparedExecution:
    versions = [span.version for call in tree.calls.values() for span in call.spans]
    trained = one.state in COUNTED_STATES and admission.num_targets > 0
    return PreparedExecution(
        execution=one.execution,
        state=one.state,
        score=one.score,
        advantage=advantage if trained else 0.0,
        num_targets=admission.num_targets,
        num_trajectories=len(admission.trajectories),
        num_leaves=len(tree.leaves),
        is_branching=tree.is_branching,
        oldest_version=min(versions, default=None),
        num_malformed=sum(call.malformed for call in tree.calls.values()),
    )


def _count_versions(versions: dict[Version, int], tree: CallTree, admission: Admission) -> None:
    for name in {name for trajectory in admission.trajectories for name in trajectory.calls}:
        if tree.num_targets(name) == 0:
            continue
        first = tree.first_target(name)
        for span in tree.calls[name].spans:
            versions[span.version] = versions.get(span.version, 0) + span.end - max(span.start, first)
