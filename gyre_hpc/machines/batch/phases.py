"""The course of a run: first weights, warm start, evaluation, training, evaluation, end."""

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Send, Start
from gyre_hpc.machines.batch.actions import Checkpoint, FindWarmStart, PreparedGroup, PrepareWarm, StoreWarmStart, WriteStatus
from gyre_hpc.machines.batch.fruit import commonest
from gyre_hpc.machines.batch.records import EvaluationEnded, Published
from gyre_hpc.machines.batch.settings import BEFORE_FIRST_STEP
from gyre_hpc.machines.batch.state import State, new_batch, persist
from gyre_hpc.machines.batch.status import status_of
from gyre_hpc.machines.batch.trial import EVALUATIONS, Phase, trial_of
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.supervision import FinishRun
from gyre_hpc.protocol.to_cell import FitOrder

LAST_STATUS = "last_status"
FIND_WARM, PREPARE_WARM, STORE_WARM = "find_warm_start", "prepare_warm", "store_warm_start"
RAW = Version(0, BEFORE_FIRST_STEP)
FIRST = Version(0, 0)
NOTHING_TO_FIT = "warm start: the scripted executions left no trainable token"
_FIT = "warm"
_PATIENCE_S = 5.0


def advance_phase(state: State, now: float) -> list[Effect]:
    """Go to the next phase when this one has nothing left to do."""
    match state.phase:
        case Phase.starting:
            return _start(state, now)
        case Phase.warm_collect:
            return _collect(state, now)
        case Phase.warm_fit:
            return _fit(state, now)
        case Phase.eval_before | Phase.eval_after:
            effects = take_target(state, now)
            if state.phase is Phase.eval_after and state.update < state.settings.updates:
                # The core was lost with updates that no checkpoint holds.
                return effects + enter(state, now, Phase.training)
            return effects + _evaluate(state, now)
        case Phase.training:
            effects = take_target(state, now)
            if state.is_settled and state.update >= state.settings.updates:
                effects += enter(state, now, Phase.eval_after)
            return effects
        case Phase.done:
            return []


def enter(state: State, now: float, phase: Phase) -> list[Effect]:
    """Begin `phase`, or the one after it if it has no work."""
    settings = state.settings
    if phase is Phase.eval_before and (not settings.eval_before or 0 in state.pass_rates):
        phase = Phase.training
    if phase is Phase.training and state.update >= settings.updates:
        phase = Phase.eval_after
    if phase is Phase.eval_after:
        _drop_stragglers(state)
        if not settings.eval_after or settings.updates in state.pass_rates:
            return finish(state, now, 0, "all updates made")
    state.phase = phase
    state.moved_on(now)
    return [Note("phase", {"phase": phase.value, "update": state.update})]


def finish(state: State, now: float, code: int, reason: str) -> list[Effect]:
    """The run is over: the last status is written next (`last_status`), then the supervisor is told until it ends us."""
    if state.finished:
        return []
    state.phase, state.finished = Phase.done, True
    state.exit_code, state.reason = code, reason
    note = Note("run_finished", {"exit_code": code, "reason": reason, "update": state.update})
    return [note]


def last_status(state: State, now: float) -> Effect:
    """After everything else that the last input brought: its alarms are in it."""
    return Start(LAST_STATUS, WriteStatus(status_of(state, now)))


def say_finished(state: State) -> Effect:
    return Send("supervisor-0", FinishRun(state.exit_code, state.reason))


def _drop_stragglers(state: State) -> None:
    """What still runs for updates that will not be made."""
    for execution in [execution for execution, id in state.groups.live.items() if id.purpose == "train"]:
        state.groups.live.pop(execution)
        state.add("executions_dropped")


def _start(state: State, now: float) -> list[Effect]:
    if not state.looked_for_checkpoint:
        return []
    if state.is_settled and state.version is None:
        return _first_weights(state, now)
    effects = take_target(state, now)
    if state.version is not None:
        effects += enter(state, now, Phase.eval_before)
    return effects


def _first_weights(state: State, now: float) -> list[Effect]:
    if state.settings.warm_executions == 0:
        state.target = FIRST
        return []
    if state.groups.of_purpose("warm", 0):
        # The core may have fitted them already, under the name that a cached warm start would get.
        return _fit_our_own(state, now)
    if FIND_WARM in state.running_actions:
        return []
    state.running_actions.add(FIND_WARM)
    return [Start(FIND_WARM, FindWarmStart())]


def found_warm_start(state: State, now: float, told: Finished | Failed) -> list[Effect]:
    """Load the cached one, or collect scripted executions while the core makes the random weights."""
    cached: Checkpoint | None = told.result if isinstance(told, Finished) else None
    if cached is not None:
        state.loading, state.target = cached, FIRST
        return [Note("warm_start", {"cached": cached.folder})]
    effects = _fit_our_own(state, now)
    if isinstance(told, Failed):
        effects.append(Note("alarm", {"what": "cached warm start cannot be read", "reason": told.reason}))
    return effects


def _fit_our_own(state: State, now: float) -> list[Effect]:
    state.target = RAW
    return enter(state, now, Phase.warm_collect)


def take_target(state: State, now: float) -> list[Effect]:
    """The core has the weights it was brought to: publish them."""
    core = state.fleet.core
    if state.target is None or not core.is_usable or not core.has(state.target) or state.target.step == BEFORE_FIRST_STEP:
        return []
    state.version, state.target, state.loading = state.target, None, None
    state.batch = new_batch(state.version.step)
    state.moved_on(now)
    note = Note("version_published", {"version": str(state.version), "update": state.version.step - 1})
    return [note, *persist(state, Published(state.version, -1, {}), _nothing)]


def _nothing(state: State, now: float) -> list[Effect]:
    return []


def _trial_is_over(state: State) -> bool:
    trial = trial_of(state.phase, state.settings.updates)
    assert trial is not None
    purpose, slot = trial
    total = state.settings.warm_executions if purpose == "warm" else state.settings.eval_tasks
    groups = state.groups.of_purpose(purpose, slot)
    return len(groups) >= total and all(group.is_complete for group in groups)


def _collect(state: State, now: float) -> list[Effect]:
    if not _trial_is_over(state) or PREPARE_WARM in state.running_actions:
        return []
    members = tuple(member for group in state.groups.of_purpose("warm", 0) for member in group.members)
    newest = max((state.recently_ended.get(member, -1e18) for member in members), default=-1e18)
    state.running_actions.add(PREPARE_WARM)
    return [Start(PREPARE_WARM, PrepareWarm(executions=members, version=RAW, final=now - newest > _PATIENCE_S))]


def prepared_warm(state: State, now: float, told: Finished | Failed) -> list[Effect]:
    """Micro-batches of the scripted executions exist: the core fits them."""
    if isinstance(told, Failed):
        if told.kind == "JournalIncomplete":
            return []
        return finish(state, now, 1, f"warm start could not be prepared: {told.reason}")
    result: PreparedGroup = told.result
    if not result.micro_batches:
        return finish(state, now, 1, f"{NOTHING_TO_FIT}; most of them: {commonest(state.groups.ends_of('warm', 0))}")
    state.fit_urls = tuple(f"{state.settings.controller_url}/micro_batches/{entry.id}" for entry in result.micro_batches)
    note = Note(
        "warm_start", {"executions": result.num_executions, "tokens": result.num_trained_tokens, "micro_batches": len(state.fit_urls)}
    )
    return [note, *enter(state, now, Phase.warm_fit)]


def fit_order(state: State) -> FitOrder | None:
    if state.phase is not Phase.warm_fit:
        return None
    return FitOrder(id=_FIT, urls=state.fit_urls, epochs=state.settings.warm_epochs, version=FIRST)


def _fit(state: State, now: float) -> list[Effect]:
    core = state.fleet.core
    if not core.is_usable or core.report is None or not core.has(RAW) and not core.has(FIRST):
        return []
    if core.report.fit_progress != state.totals.get("fit_progress", 0.0):
        state.totals["fit_progress"] = core.report.fit_progress
        state.moved_on(now)
    if core.report.fitted != _FIT or not core.has(FIRST):
        if core.role is not Role.train:
            core.change_role(Role.train)
        return []
    core.change_role(Role.rollout)
    state.target = FIRST
    effects = take_target(state, now)
    state.running_actions.add(STORE_WARM)
    effects.append(Start(STORE_WARM, StoreWarmStart(FIRST)))
    return effects + enter(state, now, Phase.eval_before)


def may_evaluate(state: State) -> bool:
    """Evaluations run on one frozen version: every usable cell serves it and none is on its way elsewhere."""
    usable = state.fleet.usable()
    return (
        state.is_settled
        and bool(usable)
        and all(cell.is_serving and cell.report is not None and cell.report.version == state.version for cell in usable)
    )


def _evaluate(state: State, now: float) -> list[Effect]:
    if state.phase not in EVALUATIONS or state.version is None or not _trial_is_over(state):
        return []
    trial = trial_of(state.phase, state.settings.updates)
    assert trial is not None
    passed, total = state.groups.num_passed(*trial)
    slot = trial[1]
    ends, alarms = state.groups.ends_of(*trial), list[Effect]()
    if ends and not total:
        alarms = [Note("alarm", {"what": f"evaluation of {state.version}: no execution has a score", "reason": commonest(ends)})]
    state.pass_rates[slot] = passed / total if total else 0.0
    record = EvaluationEnded(slot, state.version, passed, total)
    note = Note(
        "evaluation", {"slot": slot, "version": str(state.version), "passed": passed, "total": total, "pass_rate": state.pass_rates[slot]}
    )
    return [*alarms, note, *persist(state, record, _nothing), *enter(state, now, Phase.training if slot == 0 else Phase.eval_after)]
