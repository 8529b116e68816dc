"""What consumed executions left behind goes, once no checkpoint that the run may go back to needs it."""

from gyre_hpc.machines.base import Effect, Start
from gyre_hpc.machines.batch.actions import ForgetMicroBatches
from gyre_hpc.machines.batch.groups import Group, GroupState
from gyre_hpc.machines.batch.state import State

FORGET = "forget"


def forget(state: State, step: int) -> list[Effect]:
    """The weights are of `step`: micro-batches of updates before it, and what the journal's reader holds of consumed groups, go."""
    if FORGET in state.running_actions or step == 0:
        return []
    state.running_actions.add(FORGET)
    groups = [group for group in state.groups.of_purpose("train") if _is_over(state, group, step)]
    for group in groups:
        group.forgotten = True
    executions = tuple(execution for group in groups for execution in (*group.members, *group.former))
    return [Start(FORGET, ForgetMicroBatches(step, executions))]


def _is_over(state: State, group: Group, step: int) -> bool:
    """No checkpoint is left that lacks it. Without one of each version a lost core would need it again."""
    oldest_kept = step - state.settings.checkpoints_kept + 1
    is_gone = group.state is GroupState.consumed and group.update < oldest_kept
    return is_gone and not group.forgotten and state.settings.checkpoint_before_publish
