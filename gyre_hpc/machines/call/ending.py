"""How calls and executions end. Every end is a CallEnd record; an answer leaves after it is durable."""

import msgspec

from gyre_hpc.chat.base import Answer, Message
from gyre_hpc.machines.base import CancelTimer, Note, SetTimer
from gyre_hpc.machines.call.delivery import final, parse, refuse, reply
from gyre_hpc.machines.call.live import CallState, LiveCall
from gyre_hpc.machines.call.minted import as_sent
from gyre_hpc.machines.call.node import ANSWERED
from gyre_hpc.machines.call.outbox import execution_of
from gyre_hpc.machines.call.progress import flush, release_cell
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.machines.call.turns import digest_turns, text_digest
from gyre_hpc.protocol.journal import CallEnd, ExecutionEnd, Stored
from gyre_hpc.protocol.train_groups import TrainGroups


def close(shard: Shard, live: LiveCall, finish: str) -> None:
    """All tokens are there: parse the answer."""
    shard.waiting.pop(live.call, None)
    live.state, live.finish = CallState.closing, finish
    flush(shard, live)
    live.parse_key = shard.start("parse", live.call, parse(live, live.recorded.num_output))


def parsed(shard: Shard, live: LiveCall, answer: Answer) -> None:
    """Mint ids for its tool calls; record the end, or deliver again what ended before."""
    live.parse_key = ""
    live.answer = as_sent(live.call, answer)
    if live.state is CallState.closing:
        _record_end(shard, live, live.answer)
    elif live.state is CallState.ended:
        if live.asked.store and not shard.tree(live.execution).is_kept(live.call):
            # Whoever asked first did not want it kept.
            shard.persist(_stored(shard, live, final(live, live.answer)))
        else:
            reply(shard, live)


def recorded_end(shard: Shard, end: CallEnd) -> None:
    """A CallEnd is durable."""
    live = shard.live.get(end.call)
    if live is None:
        return
    if end.finish in ANSWERED and live.state is CallState.closing:
        live.state = CallState.ended
        reply(shard, live)
    elif (
        live.state is CallState.suspended
        and not live.is_claimed
        and (end.finish, end.num_output) == (live.finish, live.recorded.num_output)
    ):
        del shard.live[end.call]


def give_up(shard: Shard, live: LiveCall, finish: str) -> None:
    """Stop work on an unfinished call; what was sampled stays, and the same request goes on from it."""
    shard.waiting.pop(live.call, None)
    shard.emit(CancelTimer(f"deadline/{live.call}"), CancelTimer(f"abandon/{live.call}"))
    if live.state is CallState.rendering:
        del shard.live[live.call]
        shard.tree(live.execution).rendering.pop(live.call, None)
        return
    release_cell(shard, live, stop=True)
    flush(shard, live)
    live.state = CallState.suspended
    node = live.recorded
    node.finish = live.finish = finish
    _persist_end(shard, live, None)


def abandon(shard: Shard, live: LiveCall) -> None:
    """Its client left and did not come back in time."""
    if live.conn or live.state in (CallState.closing, CallState.ended):
        return
    give_up(shard, live, "abandoned")


def miss_deadline(shard: Shard, live: LiveCall) -> None:
    """The call's longest life is over."""
    if live.state in (CallState.closing, CallState.ended):
        # All tokens are there; only the disk is missing, and its owner says so in every report.
        shard.emit(SetTimer(f"deadline/{live.call}", shard.settings.call_deadline_s))
        return
    fail(shard, live, why_waiting(shard, live))


def fail(shard: Shard, live: LiveCall, reason: str) -> None:
    """End it without an answer."""
    conn, live.conn = live.conn, ""
    shard.emit(Note("call_failed", {"call": live.call, "reason": reason}))
    give_up(shard, live, "failed")
    if conn:
        refuse(shard, conn, 503, "call_failed", f"the call got no answer: {reason}")


def why_waiting(shard: Shard, live: LiveCall) -> str:
    """Reason a person can act on."""
    if live.state is CallState.sampling and live.row is not None:
        return f"{live.row.cell} has not finished it"
    if shard.journal.full:
        return f"the journal cannot be written: {shard.journal.full}"
    if not shard.routing.table.rows:
        return "no cell takes calls"
    return "no cell of the routing table fits it (purpose, version, or barred after a failure)"


def end_execution(shard: Shard, execution: str) -> None:
    """The batch machine says it is over: cancel its calls, forget its tokens."""
    shard.ended.add(execution)
    for live in [live for live in shard.live.values() if live.execution == execution]:
        live.conn = ""
        if live.state is CallState.ended or live.answer is not None:
            shard.emit(CancelTimer(f"deadline/{live.call}"), CancelTimer(f"abandon/{live.call}"))
        else:
            give_up(shard, live, "abandoned")
        shard.live.pop(live.call, None)
    for conn in list(shard.conns.of(execution)):
        refuse(shard, conn, 404, "execution_ended", f"execution {execution} has ended")
    if shard.trees.pop(execution, None) is not None:
        shard.persist(ExecutionEnd(execution, shard.unix()))


def end_groups(shard: Shard, groups: TrainGroups) -> None:
    """The batch machine says that all their executions are over: also those of which this shard was not told one by one in time."""
    if not shard.ended.take(groups):
        return
    shard.homes.forget(groups)
    for execution in [execution for execution in (*shard.trees, *shard.earlier) if execution in shard.ended]:
        shard.earlier.pop(execution, None)
        if execution in shard.trees:
            end_execution(shard, execution)


def _record_end(shard: Shard, live: LiveCall, answer: Answer) -> None:
    node = live.recorded
    # An engine that looks for stop sequences in its own tokens alone may sample beyond one that began before a switch of cells.
    node.finish = live.finish = "tool_calls" if answer.tool_calls else "stop" if answer.stopped_by else live.finish
    told = final(live, answer)
    node.text = text_digest(told.content)
    node.tool_calls = tuple(call.id for call in told.tool_calls)
    said = Message(role="assistant", content=told.content, tool_calls=told.tool_calls, reasoning=told.reasoning)
    node.turn = digest_turns([said])[0].digest
    node.thought |= bool(answer.reasoning)
    count_tool_calls(shard, live.execution, len(node.tool_calls), len(answer.malformed))
    if live.asked.store:
        shard.persist(_stored(shard, live, told))
    _persist_end(shard, live, told)


def recorded_stored(shard: Shard, record: Stored) -> None:
    """An answer is kept durably; it may be what an ended call still waited for."""
    tree, live = shard.trees.get(execution_of(record.call)), shard.live.get(record.call)
    if tree is not None:
        tree.keep(record)
    if live is not None and live.state is CallState.ended and live.answer is not None:
        reply(shard, live)


def _stored(shard: Shard, live: LiveCall, told: Answer) -> Stored:
    asked, shelf = live.asked, shard.tree(live.execution).shelf
    base, messages = shelf.split(asked.messages)
    return Stored(
        call=live.call,
        messages=messages,
        answer=msgspec.msgpack.encode(told),
        previous=asked.previous,
        time=shard.unix(),
        base=base,
        echoes=shelf.echoed(asked.echo),
        instructed=asked.instructed,
    )


def count_tool_calls(shard: Shard, execution: str, num: int, num_malformed: int) -> None:
    """Of an answer: what could be parsed and what could not."""
    if num:
        shard.count(execution, "tool_calls", num - num_malformed)
        shard.count(execution, "tool_calls_malformed", num_malformed)


def _persist_end(shard: Shard, live: LiveCall, told: Answer | None) -> None:
    node = live.recorded
    malformed = told.malformed if told is not None else ()
    end = CallEnd(
        call=live.call,
        finish=node.finish,
        num_output=node.num_output,
        malformed=len(malformed),
        tool_calls=node.tool_calls,
        digest=node.running_digest(),
        cells=tuple(node.cells),
        num_reprefilled=node.num_reprefilled,
        time=shard.unix(),
        text=node.text,
        malformed_spans=tuple((bad.start, bad.end) for bad in malformed),
        engine_digest=node.engine_digest,
        thought=bool(told is not None and told.reasoning),
        stopped_by=told.stopped_by if told is not None else "",
        num_cached=node.num_cached,
    )
    node.took(end.time)
    shard.persist(end)
    facts = {"call": live.call, "finish": end.finish, "num_output": end.num_output, "cells": end.cells, "wall_s": shard.now - live.since}
    shard.emit(Note("call_ended", facts))
