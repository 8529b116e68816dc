"""Another life of an execution: its process is gone, a new one begins from the beginning and gets what was recorded.

The first request of a life begins it here. A request of an earlier life comes from a process that should be gone: it is refused. Calls that
are recorded and that this life has not asked for are in tree.recording; where a request is none of them, sampling goes on.
"""

from gyre_hpc.machines.base import CancelTimer, Note, SetTimer
from gyre_hpc.machines.call.actions import Arrived, Cancel, Forget, Retrieve
from gyre_hpc.machines.call.delivery import mark_delivered, refuse
from gyre_hpc.machines.call.live import CallState
from gyre_hpc.machines.call.node import Found, Node
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.protocol.journal import Known, Replayed, TakenUp


def is_over(shard: Shard, asked: Arrived | Retrieve | Forget | Cancel) -> str:
    """Why a request is of a life that is over; empty if it is not. A newer life begins here."""
    tree = shard.trees.get(asked.execution)
    life = tree.life if tree is not None else 0
    if asked.life > life:
        _begin(shard, asked.execution, asked.life)
        life = asked.life
    return f"life {asked.life} of execution {asked.execution} is over: life {life} goes on" if asked.life < life else ""


def claim(shard: Shard, request: Arrived, found: Found) -> Node | None:
    """The recorded call that a request of this life is; None: it is a new one."""
    tree = shard.tree(request.execution)
    node = tree.recording.find(request.likeness, request.thread, found.parent) if request.likeness else None
    if node is None:
        return None
    record = Replayed(
        call=node.call,
        life=tree.life,
        request_hash=request.request_hash,
        thread=request.thread,
        context=found.context,
        time=shard.unix(),
        num_tokens=node.num_output,
        seconds=round(node.spent_s, 6),
    )
    if found.parent is not None:
        mark_delivered(shard, found.parent)
    tree.replay(record, found.opening)
    shard.persist(record)
    facts = {"call": node.call, "life": tree.life, "finish": node.finish, "num_output": node.num_output, "seconds": record.seconds}
    shard.emit(Note("call_replayed", facts))
    return node


def diverges(shard: Shard, request: Arrived, found: Found) -> bool:
    """The record goes on in another way than this request, for the first time in this life."""
    tree = shard.tree(request.execution)
    return not tree.has_diverged and tree.recording.goes_on(found.parent, request.role)


def take_over(shard: Shard, record: TakenUp) -> None:
    """The record of a new life stands: rewind its tree, that of earlier attempts if there is one."""
    earlier = shard.earlier.pop(record.execution, None)
    if record.execution not in shard.trees and earlier is not None:
        shard.trees[record.execution] = earlier.tree
    shard.tree(record.execution).begin_life(record.life)


def _begin(shard: Shard, execution: str, life: int) -> None:
    record = _taken_up(shard, execution, life)
    for live in [live for live in shard.live.values() if live.execution == execution]:
        if live.state is CallState.rendering:
            # Nothing of it is recorded.
            del shard.live[live.call]
            shard.tree(execution).rendering.pop(live.call, None)
            shard.emit(CancelTimer(f"deadline/{live.call}"), CancelTimer(f"abandon/{live.call}"))
        elif live.conn:
            live.conn = ""
            shard.emit(SetTimer(f"abandon/{live.call}", shard.settings.abandon_s))
    for conn in list(shard.conns.of(execution)):
        refuse(shard, conn, 404, "execution_ended", f"another life of execution {execution} has begun")
    shard.persist(record)
    take_over(shard, record)
    if record.known:
        for node in shard.tree(execution).nodes.values():
            if not node.finish:
                left = node.sampling.max_new_tokens - node.num_output
                shard.count(execution, "unreceived", min(left, shard.settings.progress_tokens))
    facts = {"execution": execution, "life": life, "calls": len(shard.tree(execution).nodes)}
    shard.emit(Note("execution_taken_up", facts | {"tokens": record.num_tokens, "seconds": record.seconds}))


def _taken_up(shard: Shard, execution: str, life: int) -> TakenUp:
    own, earlier = shard.trees.get(execution), shard.earlier.get(execution)
    tree = own or (earlier.tree if earlier is not None else None)
    nodes = list(tree.nodes.values()) if tree is not None else []
    is_new_here = own is None and earlier is not None
    return TakenUp(
        execution=execution,
        life=life,
        time=shard.unix(),
        attempts=earlier.attempts if is_new_here and earlier is not None else (),
        known=tuple(Known(node.call, node.num_output, node.finish) for node in nodes) if is_new_here else (),
        first_version=next((node.first_version for node in nodes if node.first_version is not None), None) if is_new_here else None,
        num_tokens=sum(node.num_output for node in nodes),
        seconds=round(sum(node.spent_s for node in nodes), 6),
    )
