"""From a complete batch to a published version, and back to a whole state when the core was lost."""

from functools import partial

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Start
from gyre_hpc.machines.batch.actions import Checkpoint, FindCheckpoint
from gyre_hpc.machines.batch.commit import Commit, manifest_hash, nonce_of
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.forgetting import forget, why_not_back_to
from gyre_hpc.machines.batch.giving_up import begin_anew
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.intake import lose_cell
from gyre_hpc.machines.batch.phases import finish
from gyre_hpc.machines.batch.records import CommitIntended, Counted, LineageBegun, Published
from gyre_hpc.machines.batch.state import State, new_batch, persist, void
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import GroupId, Role, Version
from gyre_hpc.protocol.to_batch import CommitPhase
from gyre_hpc.protocol.to_cell import ApplyOrder

FIND_CHECKPOINT = "find_checkpoint"
_DAMAGED = 2
"""Exit code: the run folder is no good as it is."""
_TRIES_BEFORE_VOID = 2
_MOST_APPLY_FAILURES = 3


def consolidate(state: State, now: float) -> list[Effect]:
    """Advance the commit of the open batch by as much as the reports allow."""
    if state.phase is not Phase.training or state.version is None or not state.fleet.core.is_usable:
        return []
    if state.commit is None:
        # A restarted controller asks: the core may have applied what was intended before the restart.
        return _publish_if_applied(state, now) or ([] if state.is_saving else _begin(state, now))
    commit = state.commit
    if commit.intent:
        return _apply_failed(state, now) or _publish_if_applied(state, now)
    published = _publish_if_applied(state, now)
    if published:
        # An order of the controller before us was still under way.
        return published
    failure = commit.failure(state.fleet) or _overdue(state, now)
    if failure:
        return _fail(state, failure)
    outcome = commit.advance(state.fleet, state.batch)
    if outcome == "mismatch":
        return _fail(state, "manifests are not the batch exactly once")
    if outcome != "reduced":
        return []
    return _intend(state) if state.batch.num_executions else begin_anew(state, now)


def _begin(state: State, now: float) -> list[Effect]:
    core = state.fleet.core
    effects = _void_stranded(state, now)
    holders = sorted(state.batch.ledger.holders() - {core.name})
    members = [state.fleet.cells[name] for name in (core.name, *holders)]
    # A holder that is leaving, or has left, has its sum on the way to the core: that is waited for.
    if not state.batch.is_complete or not all(cell.is_training and cell.move is Move.none for cell in members):
        return effects
    state.generation += 1
    state.commit = Commit(
        generation=state.generation,
        members=tuple(cell.name for cell in members),
        nonce=nonce_of(state.secret, state.generation),
        started_at=now,
    )
    note = Note("commit_started", {"update": state.update, "generation": state.generation, "members": list(state.commit.members)})
    return [*effects, note]


def _void_stranded(state: State, now: float) -> list[Effect]:
    """A cell back in rollout whose sum the core does not show: the hand-in was lost, its micro-batches are done again."""
    effects: list[Effect] = []
    for name in sorted(state.batch.ledger.holders() - {state.fleet.core_name}):
        cell = state.fleet.cells[name]
        if cell.role is Role.rollout and cell.move is Move.none and now - cell.settled_at > state.settings.hand_in_patience_s:
            effects += void(state, cell, "its hand-in did not reach the core")
    return effects


def _apply_failed(state: State, now: float) -> list[Effect]:
    """Nobody knows how much of an optimizer step that failed was made: the core begins again from its checkpoint."""
    commit, core = state.commit, state.fleet.core
    assert commit is not None
    report = commit.reports(state.fleet).get(core.name)
    if report is None or report.phase is not CommitPhase.failed:
        return []
    state.apply_failures += 1
    if state.apply_failures >= _MOST_APPLY_FAILURES:
        return finish(state, now, 1, f"{state.apply_failures} optimizer steps failed in a row, last: {report.reason}")
    state.commit = None
    return lose_cell(state, now, core, f"optimizer step failed: {report.reason}")


def _overdue(state: State, now: float) -> str:
    assert state.commit is not None
    late = now - state.commit.started_at > state.settings.commit_deadline_s
    return f"not reduced within {state.settings.commit_deadline_s:g} s" if late else ""


def _fail(state: State, reason: str) -> list[Effect]:
    """Drop the generation; satellites that were in it again and again are voided, so that the core can finish alone."""
    commit = state.commit
    assert commit is not None
    state.commit = None
    state.commit_failures += 1
    state.add("commits_failed")
    effects: list[Effect] = [Note("commit_failed", {"update": state.update, "generation": commit.generation, "reason": reason})]
    if state.commit_failures >= _TRIES_BEFORE_VOID:
        for name in commit.members[1:]:
            effects += void(state, state.fleet.cells[name], reason)
        if len(commit.members) == 1:
            effects += void(state, state.fleet.core, reason)
        state.commit_failures = 0
    return effects


def _intend(state: State) -> list[Effect]:
    commit, version = state.commit, state.version
    assert commit is not None and version is not None
    leads_to = Version(version.lineage, version.step + 1)
    members = [member for id in state.batch.groups for member in state.groups.groups[id].members]
    commit.intent = manifest_hash(leads_to, members, state.batch.ledger.ids())
    record = CommitIntended(
        update=state.update,
        manifest_hash=commit.intent,
        version=leads_to,
        groups=tuple(state.batch.groups),
        num_executions=state.batch.num_executions,
    )

    def durable(state: State, now: float) -> list[Effect]:
        state.intents[record.update] = record
        if state.commit is commit:
            commit.intent_is_durable = True
        return []

    return persist(state, record, durable)


def apply_order(state: State) -> ApplyOrder | None:
    """What the core is to apply now: only once the intent is durable."""
    commit = state.commit
    if commit is None or not commit.intent_is_durable:
        return None
    intent = state.intents[state.update]
    return ApplyOrder(
        update=intent.update,
        manifest_hash=intent.manifest_hash,
        num_executions=intent.num_executions,
        version=intent.version,
        consumed=state.groups.consumed_with(intent.groups),
        is_last=intent.update + 1 >= state.settings.updates,
        counters={"groups_begun": state.groups.begun["train"], "update": intent.update + 1},
    )


def _publish_if_applied(state: State, now: float) -> list[Effect]:
    core = state.fleet.core.report
    intent = state.intents.get(state.update)
    if core is None or core.applied is None or intent is None:
        return []
    applied = core.applied
    if (applied.update, applied.manifest_hash) != (intent.update, intent.manifest_hash):
        return []
    return publish(state, now, intent, applied.version, applied.metrics)


def publish(state: State, now: float, intent: CommitIntended, version: Version, metrics: dict[str, float]) -> list[Effect]:
    """The update is made: its groups are consumed, the next batch opens, cells go over to `version`."""
    trained_by = [entry.trained_by for entry in state.batch.ledger.entries()]
    by_satellites = sum(bool(name) and name != state.fleet.core_name for name in trained_by)
    joined = len(state.batch.joined)
    for id in state.batch.groups:
        # A restarted controller may have begun another batch before it heard that this update was made.
        state.groups.groups[id].state, state.groups.groups[id].update = GroupState.complete, -1
    for id in intent.groups:
        group = state.groups.groups[id]
        group.state, group.update = GroupState.consumed, intent.update
    state.version, state.commit, state.commit_failures, state.apply_failures = version, None, 0, 0
    state.empty_batches = 0
    state.batch = new_batch(intent.update + 1)
    state.moved_on(now)
    state.add("satellites_joined_mid_batch", joined)
    state.add("updates")
    note = Note(
        "applied",
        {
            "update": intent.update, "version": str(version), "manifest_hash": intent.manifest_hash, "executions": intent.num_executions,
            "micro_batches": len(trained_by), "by_satellites": by_satellites, "joined_mid_batch": joined, **metrics,
        },
    )  # fmt: skip
    effects: list[Effect] = [note, Note("version_published", {"version": str(version), "update": intent.update})]
    effects += forget(state, intent.update + 1)
    effects += persist(state, Published(version, intent.update, metrics), _nothing)
    return effects + persist(state, Counted(dict(state.totals)), _nothing)


def _nothing(state: State, now: float) -> list[Effect]:
    return []


def look_for_checkpoint(state: State) -> list[Effect]:
    """At the start of an attempt, and after the core was lost: what is the newest whole checkpoint?"""
    if _core_lacks_version(state):
        state.looked_for_checkpoint = False
    if state.looked_for_checkpoint or FIND_CHECKPOINT in state.running_actions:
        return []
    state.running_actions.add(FIND_CHECKPOINT)
    return [Start(FIND_CHECKPOINT, FindCheckpoint())]


def _core_lacks_version(state: State) -> bool:
    """It was lost and started again, perhaps while there was no controller to see it."""
    core = state.fleet.core
    known = state.version is not None and state.loading is None and state.target is None and core.report is not None and not core.lost
    return known and state.version is not None and not core.has(state.version)


def found_checkpoint(state: State, now: float, told: Finished | Failed) -> list[Effect]:
    """Load it as a new lineage; without one the run begins anew from version 0."""
    state.looked_for_checkpoint = True
    if isinstance(told, Failed):
        state.looked_for_checkpoint = False
        return [Note("alarm", {"what": "checkpoints cannot be read", "reason": told.reason})]
    checkpoint: Checkpoint | None = told.result
    if why := why_not_back_to(state, checkpoint.version.step if checkpoint is not None else 0):
        return finish(state, now, _DAMAGED, why)
    if checkpoint is not None:
        return load(state, checkpoint)
    if state.version is None:
        return _nothing_to_resume(state, now)
    if state.settings.warm_executions:
        # There was one since the warm start, and nothing else gives these weights again.
        return finish(state, now, _DAMAGED, f"the core is lost and no checkpoint of {state.version} or before is whole")
    effects: list[Effect] = []
    if state.version.step > 0:
        effects.append(
            Note("alarm", {"what": "the core is lost and there is no checkpoint: all is trained again", "version": str(state.version)})
        )
    # The first weights follow from the configuration.
    return effects + load(state, Checkpoint(folder="", version=Version(state.version.lineage, 0), update=-1))


def _nothing_to_resume(state: State, now: float) -> list[Effect]:
    """A new attempt finds no whole checkpoint: right before the first update; later, what was made is lost, or must be restored."""
    if state.update == 0:
        return []
    if state.settings.checkpoint_before_publish or state.settings.warm_executions:
        # Each version had one: going on would write over, and prune, what a person may still restore.
        return finish(state, now, _DAMAGED, f"update {state.update} was made and no checkpoint is whole: restore one, or begin another run")
    note = Note("alarm", {"what": "no checkpoint is whole: all is trained again", "reason": f"update {state.update} was made"})
    return [note, *load(state, Checkpoint(folder="", version=Version(state.lineage, 0), update=-1))]


def load(state: State, checkpoint: Checkpoint) -> list[Effect]:
    """Go back to a checkpoint: consumed is what it says, the rest of later updates is trained again."""
    lineage = state.lineage = max(checkpoint.version.lineage, state.version.lineage if state.version else 0, state.lineage) + 1
    target = Version(lineage, checkpoint.version.step)
    state.groups.unconsume_from(target.step)
    unpublished: list[tuple[GroupId, int]] = []
    for group in state.groups.of_purpose("train"):
        if group.state is GroupState.complete and group.id in checkpoint.consumed:
            group.state, group.update = GroupState.consumed, _update_of(state, group.id, target.step - 1)
            unpublished.append((group.id, group.update))
    state.forget_intents_from(target.step)
    state.saved_steps = ()
    state.batch, state.commit = new_batch(target.step), None
    for cell in state.fleet.cells.values():
        cell.fence += 1
    state.loading = checkpoint
    note = Note("checkpoint", {"loaded": checkpoint.folder, "version": str(checkpoint.version), "as": str(target)})
    return [
        note,
        *forget(state, target.step),
        *persist(state, LineageBegun(target, tuple(unpublished)), partial(_bring_core_to, target=target, checkpoint=checkpoint)),
    ]


def _bring_core_to(state: State, now: float, *, target: Version, checkpoint: Checkpoint) -> list[Effect]:
    """Nobody hears of a lineage before it is durable: a restarted controller must not give its number to other weights."""
    if state.loading is checkpoint:
        state.target = target
    return []


def _update_of(state: State, group: GroupId, newest: int) -> int:
    """The update up to `newest` that a group was meant for."""
    return next((update for update, intent in state.intents.items() if update <= newest and group in intent.groups), newest)
