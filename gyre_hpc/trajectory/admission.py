"""Admission: at most J_max trajectories of an execution are trained on, by role priority.

T_e, the execution's targets, is the union of the targets of the admitted paths; a shared one is trained once. Greedy: the
role first (main > sub_agent > compaction > helper), then the leaf that adds most targets not yet admitted, ties to the later
call. A leaf that adds nothing is not admitted. O(J_max * leaves * depth) in calls, never in tokens.
"""

from dataclasses import dataclass

from gyre_hpc.trajectory.base import Trajectory
from gyre_hpc.trajectory.tree import CallTree

ROLES = ("main", "sub_agent", "compaction", "helper")
"""Best first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """What of one execution is trained on."""

    trajectories: tuple[Trajectory, ...]
    """In order of admission."""
    num_targets: int
    """|T_e|."""


def admit(tree: CallTree, j_max: int) -> Admission:
    """Choose the trajectories of one execution. Raises ValueError for an unknown role."""
    waiting = list(tree.leaves)
    admitted: set[str] = set()
    chosen: list[Trajectory] = []
    ranks = {leaf: _rank(tree.calls[leaf].role) for leaf in waiting}
    while waiting and len(chosen) < j_max:
        gains = {leaf: _new_targets(tree, leaf, admitted) for leaf in waiting}
        waiting = [leaf for leaf in waiting if gains[leaf] > 0]
        if not waiting:
            break
        best = min(waiting, key=lambda leaf: (ranks[leaf], -gains[leaf], -tree.calls[leaf].ordinal))
        path = tree.path(best)
        chosen.append(
            Trajectory(
                leaf=best,
                role=tree.calls[best].role,
                calls=path,
                num_targets=sum(tree.num_targets(call) for call in path),
                num_new_targets=gains[best],
            )
        )
        admitted.update(path)
        waiting.remove(best)
    return Admission(trajectories=tuple(chosen), num_targets=sum(one.num_new_targets for one in chosen))


def _rank(role: str) -> int:
    if role not in ROLES:
        raise ValueError(f"role {role!r} of a call is none of {', '.join(ROLES)}")
    return ROLES.index(role)


def _new_targets(tree: CallTree, leaf: str, admitted: set[str]) -> int:
    count, call = 0, leaf
    while call not in admitted:
        count += tree.num_targets(call)
        parent = tree.calls[call].parent
        if parent is None:
            break
        call = parent
    return count
