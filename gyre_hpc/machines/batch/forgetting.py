"""What consumed executions left behind goes, once no checkpoint that the run may go back to needs it: of their groups the numbers stay.

The run goes back to one of the newest checkpoints. Which ones there are follows from the plan where each version is saved before it is
published; otherwise from what the core said was saved, and a controller that is new knows of none yet.
"""

from gyre_hpc.machines.base import Effect, Start
from gyre_hpc.machines.batch.actions import ForgetMicroBatches
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.state import State

FORGET = "forget"


def forget(state: State, step: int) -> list[Effect]:
    """The weights are of `step`: micro-batches of updates before it, and all that is held of groups consumed for good, go."""
    _watch_saves(state)
    if FORGET in state.running_actions or step == 0:
        return []
    state.running_actions.add(FORGET)
    oldest = _oldest_kept(state, step)
    groups = [group for group in state.groups.of_purpose("train") if group.state is GroupState.consumed and group.update < oldest]
    state.groups.retire(groups, oldest)
    # A checkpoint of the oldest step is told by the intent of the update before it.
    state.intents = {update: intent for update, intent in state.intents.items() if update >= oldest - 1}
    executions = tuple(execution for group in groups for execution in (*group.members, *group.former))
    return [Start(FORGET, ForgetMicroBatches(step, executions))]


def why_not_back_to(state: State, step: int) -> str:
    """Why the weights of `step` are no use to this attempt; empty if they are. Then every checkpoint that was kept is gone or damaged."""
    first = state.groups.retired_step
    if step >= first:
        return ""
    return (
        f"the core is lost, and no checkpoint from step {first} on is whole: what was trained on before is held no more; resume the run"
        " (the next attempt reads it again), or restore a newer checkpoint first"
    )


def _oldest_kept(state: State, step: int) -> int:
    """Step of the oldest checkpoint that the run may go back to; 0: any."""
    settings, seen = state.settings, state.saved_steps
    planned = step - settings.checkpoints_kept + 1 if settings.checkpoint_before_publish else 0
    return max(planned, seen[0] if len(seen) >= settings.checkpoints_kept else 0)


def _watch_saves(state: State) -> None:
    """The core says which version it saved last; those of earlier lineages are not the newest ones any more."""
    report = state.fleet.core.report
    saved = report.saved if report is not None else None
    if saved is not None and saved.lineage == state.lineage and saved.step > (state.saved_steps or (-1,))[-1]:
        state.saved_steps = (*state.saved_steps, saved.step)[-state.settings.checkpoints_kept :]
