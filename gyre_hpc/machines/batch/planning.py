"""Which groups begin, which make the batch, and their way from journal to ledger."""

from functools import partial

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Start
from gyre_hpc.machines.batch.actions import PreparedGroup, PrepareGroup
from gyre_hpc.machines.batch.groups import Group, GroupState
from gyre_hpc.machines.batch.records import GroupBegun
from gyre_hpc.machines.batch.state import State, persist
from gyre_hpc.machines.batch.trial import Phase, trial_of
from gyre_hpc.protocol.identity import GroupId, Role
from gyre_hpc.scheduler.staleness import Candidate, choose_batch, may_dispatch, policy_of

PREPARE = "prepare"
_PATIENCE_S = 5.0
"""A group whose last journal records have not appeared by then is prepared from what is there."""


def dispatch(state: State, now: float) -> list[Effect]:
    """Begin as many groups as gates and room allow."""
    effects: list[Effect] = []
    while _may_begin(state):
        id = _next(state)
        if id is None:
            break
        group = state.groups.begin(id, oldest_met_step(state))
        state.moved_on(now)
        effects += persist(state, GroupBegun(id, group.floor), partial(_begun, group=group))
        effects.append(Note("group_begun", {"group": str(id), "update": state.update}))
    return effects


def _begun(state: State, now: float, *, group: Group) -> list[Effect]:
    group.durable = True
    return [Note("execution_began", {"execution": member, "purpose": group.id.purpose}) for member in group.members]


def _may_begin(state: State) -> bool:
    if state.storage_full or not state.runners or any(report.storage_full for report in state.runners.values()):
        return False
    capacity = sum(report.capacity for report in state.runners.values())
    size = state.settings.group_size if state.phase is Phase.training else 1
    return not state.groups.live or len(state.groups.live) + size <= capacity


def _next(state: State) -> GroupId | None:
    settings = state.settings
    trial = trial_of(state.phase, settings.updates)
    if trial is not None:
        purpose, slot = trial
        total = settings.warm_executions if purpose == "warm" else settings.eval_tasks
        id = state.groups.next_group(purpose, slot)
        return id if id.group < total else None
    if state.phase is Phase.training and not gate_closed(state):
        return state.groups.next_group("train")
    return None


def gate_closed(state: State) -> bool:
    """The dispatch gate lets no new group begin. It counts from the oldest version that a first call may meet."""
    settings = state.settings
    begun = state.groups.begun["train"]
    if settings.incarnation > 1 and not state.fleet.is_known():
        # Gateways still go by a table of the controller before this one: a cell not heard of may serve something older.
        return True
    return begun >= settings.total_groups or not may_dispatch(
        begun,
        oldest_met_step(state),
        policy_of(settings.scheduler),
        max_staleness=settings.scheduler.max_staleness,
        groups_per_batch=settings.groups_per_batch,
    )


def oldest_met_step(state: State) -> int:
    """Oldest step a first call made from now on can meet."""
    # While the core is brought to other weights the cells still serve what was published before.
    met = [state.update, state.version.step if state.version is not None else None, state.fleet.oldest_served_step()]
    return min(step for step in met if step is not None)


def choose(state: State) -> list[Effect]:
    """Take complete groups into the open batch. A batch under commit takes no more."""
    if state.phase is not Phase.training or state.commit is not None or state.batch.full:
        return []
    choice = choose_batch(
        [_candidate(group) for group in state.groups.in_state(GroupState.complete)],
        [_candidate(group) for group in state.groups.in_state(GroupState.begun)],
        state.update,
        state.settings.scheduler,
        groups_per_batch=state.settings.groups_per_batch,
        taken=[_candidate(state.groups.groups[id]) for id in state.batch.groups],
    )
    for id in choice.added:
        group = state.groups.groups[id]
        group.state, group.update = GroupState.chosen, state.update
        state.batch.groups.append(id)
    state.batch.full, state.batch.reason = choice.full, choice.reason
    return []


def _candidate(group: Group) -> Candidate:
    return Candidate(id=group.id, version=group.oldest_possible_step)


def prepare(state: State, now: float) -> list[Effect]:
    """One group at a time, in the order they were chosen, so that ordinals follow on."""
    id = state.batch.to_prepare
    if id is None or PREPARE in state.running_actions or state.version is None:
        return []
    group = state.groups.groups[id]
    state.running_actions.add(PREPARE)
    newest_end = max((state.recently_ended.get(member, -1e18) for member in group.members), default=-1e18)
    state.preparing = PrepareGroup(
        group=id,
        ended=tuple(group.ended[member] for member in group.members),
        update=state.update,
        version=state.version,
        first_ordinal=state.batch.next_ordinal,
        final=now - newest_end > _PATIENCE_S,
    )
    return [Start(PREPARE, state.preparing)]


def prepared(state: State, now: float, told: Finished | Failed) -> list[Effect]:
    """Micro-batches of a group exist, or its journal is not complete yet (tried again at the next tick)."""
    id = state.batch.to_prepare
    if isinstance(told, Failed):
        if told.kind == "JournalIncomplete":
            return []
        return [Note("alarm", {"what": "group could not be prepared", "group": str(id), "kind": told.kind, "reason": told.reason})]
    result: PreparedGroup = told.result
    asked = state.preparing
    assert asked is not None
    if (asked.group, asked.update, asked.version, asked.first_ordinal) != (id, state.update, state.version, state.batch.next_ordinal):
        # Asked for by a batch that is no more.
        return []
    assert id is not None
    alarms: list[Effect] = []
    state.batch.add_prepared(id, result)
    state.moved_on(now)
    state.fruitless.take_group(state.groups.groups[id].ended.values(), result.num_executions)
    for execution, reason in result.damaged:
        state.add("executions_damaged")
        alarms.append(Note("alarm", {"what": "journal of an execution is damaged", "execution": execution, "reason": reason}))
    state.add("executions_branching", result.num_branching)
    state.add("trained_tokens", result.num_trained_tokens)
    group = state.groups.groups[id]
    staleness = state.update - (group.first_step if group.first_step is not None else state.update)
    state.add(f"staleness_{staleness}")
    return [
        *alarms,
        Note(
            "group_ready",
            {
                "group": str(id), "update": state.update, "micro_batches": [entry.id for entry in result.micro_batches],
                "tokens": sum(entry.num_tokens for entry in result.micro_batches), "executions": result.num_executions,
                "branching": result.num_branching, "trained_tokens": result.num_trained_tokens, "staleness": staleness,
                "trajectories": result.num_trajectories, "mean_score": _mean_score(group), "passed": _passed(group),
                "size": len(group.members), "batch_groups": len(state.batch.prepared),
            },
        )
    ]  # fmt: skip


def _mean_score(group: Group) -> float:
    scores = [ended.score for ended in group.ended.values() if ended.score is not None]
    return sum(scores) / len(scores) if scores else 0.0


def _passed(group: Group) -> int:
    return sum(ended.passed for ended in group.ended.values())


def lease(state: State, now: float) -> list[Effect]:
    """Give ready micro-batches to cells that train, the fastest first."""
    if state.commit is not None:
        return []
    effects: list[Effect] = []
    cells = [cell for cell in state.fleet.training() if cell.is_training and cell.move.value == "none" and cell.role is Role.train]
    for cell in sorted(cells, key=lambda cell: (-(cell.report.train_tokens_per_s if cell.report else 0.0), cell.name)):
        if cell.report is None or cell.report.version != state.version:
            continue
        if (cell.report.update, cell.report.fence) != (state.update, cell.fence):
            # Its sum is of something else; it says so once it has begun at zero.
            continue
        for entry in state.batch.ledger.lease(cell.name, state.settings.prefetch):
            effects.append(
                Note("micro_batch_leased", {"id": entry.id, "cell": cell.name, "update": state.update, "tokens": entry.num_tokens})
            )
    return effects
