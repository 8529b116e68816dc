"""Stored answers: conversations that go on from one, and requests about one.

A record holds what its request added alone; the whole conversation is put together along `previous`. From there on it is a
conversation like any other, except that each assistant turn names the call it is the answer of. Instructions are of one answer alone:
those of earlier ones are left out.
"""

from collections.abc import Iterable
from dataclasses import replace as changed

import msgspec

from gyre_hpc.chat.base import Answer, Message
from gyre_hpc.machines.base import Start
from gyre_hpc.machines.call.actions import Arrived, Cancel, Confirm, Forget, Reply, Retrieve
from gyre_hpc.machines.call.delivery import last_words, refuse
from gyre_hpc.machines.call.ending import give_up
from gyre_hpc.machines.call.live import CallState, Conn, LiveCall
from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.machines.call.turns import digest_turns
from gyre_hpc.protocol.journal import Forgotten, Stored

_ANSWER = msgspec.msgpack.Decoder(Answer)
_ENDED = (CallState.closing, CallState.ended)


def expand(shard: Shard, request: Arrived) -> Arrived | None:
    """The request with the whole conversation it continues; None when there is no such answer for it."""
    tree = shard.trees.get(request.execution)
    if tree is None or not _is_stored(shard, tree, request.previous):
        return None
    first = 1 if request.instructed else 0
    messages, turns = list(request.messages[:first]), list(request.turns[:first])
    for record in _chain(tree, request.previous):
        said = _named(tree.shelf.messages(record)[1 if record.instructed else 0 :], messages)
        answer = _ANSWER.decode(record.answer)
        turn = Message(role="assistant", content=answer.content, tool_calls=answer.tool_calls, reasoning=answer.reasoning)
        messages += (*said, turn)
        turns += (*digest_turns(said), msgspec.structs.replace(digest_turns([turn])[0], call=record.call))
    messages += _named(request.messages[first:], messages)
    turns += request.turns[first:]
    return msgspec.structs.replace(request, messages=tuple(messages), turns=tuple(turns))


def retrieve(shard: Shard, asked: Retrieve) -> None:
    """Give a stored answer out again."""
    tree = _tree_with(shard, asked)
    if tree is None:
        return
    node, record = tree.nodes[asked.call], tree.stored[asked.call]
    _connect(shard, asked)
    reply = Reply(
        conn=asked.conn,
        call=asked.call,
        answer=_ANSWER.decode(record.answer),
        finish=node.finish,
        prompt_tokens=node.num_prompt,
        completion_tokens=node.num_output,
        cached_tokens=node.num_cached,
        ids=bytes(node.output) if node.logprobs is not None else b"",
        logprobs=bytes(node.logprobs or b""),
        echo=tree.shelf.echo(record),
        previous=record.previous,
        created=int(node.began_at),
    )
    last_words(shard, asked.conn, Start(f"reply/{asked.conn}", reply))


def forget(shard: Shard, asked: Forget) -> None:
    """Never give it out again; what goes on from it already still does."""
    tree = _tree_with(shard, asked)
    if tree is not None:
        _connect(shard, asked)
        tree.forgotten.add(asked.call)
        shard.confirming.setdefault(asked.call, []).append(asked.conn)
        shard.persist(Forgotten(asked.call, shard.unix()))


def cancel(shard: Shard, asked: Cancel) -> None:
    """Stop work on a call; who waits for it is told."""
    live, tree = shard.live.get(asked.call), shard.trees.get(asked.execution)
    node = tree.nodes.get(asked.call) if tree is not None else None
    if (live is None and node is None) or asked.call.rpartition("/")[0] != asked.execution:
        _not_found(shard, asked)
        return
    if (live is not None and live.state in _ENDED) or (live is None and node is not None and node.is_answered):
        refuse(shard, asked.conn, 400, "already_ended", f"{asked.call} has its answer already")
        return
    _connect(shard, asked)
    if live is None or (live.state is CallState.suspended and not live.is_claimed):
        if live is not None and not live.recorded.finish:
            # It was open when this shard began anew: its client is on the way back.
            _remember_untold(shard, live, "")
        confirm(shard, asked.conn)
        return
    conn, live.conn, live.is_claimed = live.conn, "", False
    _remember_untold(shard, live, conn)
    is_recorded = live.node is not None
    if is_recorded:
        shard.confirming.setdefault(asked.call, []).append(asked.conn)
    give_up(shard, live, "abandoned")
    if conn:
        refuse(shard, conn, 400, "cancelled", f"{asked.call} was cancelled")
    if not is_recorded:
        confirm(shard, asked.conn)


def was_cancelled(shard: Shard, request: Arrived) -> str:
    """The call of this request, if it was cancelled while its client could not be told: the client learns it now, once."""
    tree = shard.trees.get(request.execution)
    call, until = tree.untold.pop(request.request_hash, ("", 0.0)) if tree is not None else ("", 0.0)
    return call if shard.now < until else ""


def _remember_untold(shard: Shard, live: LiveCall, conn: str) -> None:
    """A client whose connection broke, or has to be broken, asks again by itself: that must not undo the cancellation."""
    known = shard.conns.get(conn)
    if known is None or known.is_held:
        asked = live.request or live.recorded
        shard.tree(live.execution).untold[asked.request_hash] = (live.call, shard.now + shard.settings.abandon_s)


def confirm_durable(shard: Shard, call: str) -> None:
    """What was asked of this call is on the disk."""
    for conn in shard.confirming.pop(call, ()):
        confirm(shard, conn)


def confirm(shard: Shard, conn: str) -> None:
    """Done."""
    if conn in shard.conns:
        last_words(shard, conn, Start(f"confirm/{conn}", Confirm(conn)))


def _named(later: Iterable[Message], before: Iterable[Message]) -> list[Message]:
    """Results of tools with the names of their tools, which stand in the answers they answer: some templates show them."""
    names = {call.id: call.name for message in before for call in message.tool_calls}
    return [changed(turn, name=turn.name or names.get(turn.tool_call_id, "")) if turn.role == "tool" else turn for turn in later]


def _chain(tree: RecordedTree, call: str) -> list[Stored]:
    """From the first answer of the conversation to this one. Answers forgotten since are still part of it."""
    found: list[Stored] = []
    while call:
        found.append(tree.stored[call])
        call = found[-1].previous
    return found[::-1]


def _tree_with(shard: Shard, asked: Retrieve | Forget) -> RecordedTree | None:
    tree = shard.trees.get(asked.execution)
    if tree is not None and _is_stored(shard, tree, asked.call):
        return tree
    _not_found(shard, asked)
    return None


def _is_stored(shard: Shard, tree: RecordedTree, call: str) -> bool:
    node, live = tree.nodes.get(call), shard.live.get(call)
    if node is None or not node.is_answered or (live is not None and live.state is not CallState.ended):
        return False
    return tree.is_kept(call)


def _connect(shard: Shard, asked: Retrieve | Forget | Cancel) -> None:
    shard.conns[asked.conn] = Conn(asked.execution, asked.call, stream=False, is_inquiry=True)


def _not_found(shard: Shard, asked: Retrieve | Forget | Cancel) -> None:
    refuse(shard, asked.conn, 404, "not_found", f"no answer of {asked.call} is stored for this execution")
