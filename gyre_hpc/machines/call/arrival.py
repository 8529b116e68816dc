"""A request comes in: is it a call we know, where does it belong, what is its prompt.

Same call = same (execution, thread, canonical body). While the first one's connection is open an identical request is a new
call (parallel sub-agents); after that it is the same call, unless something already builds on its answer (DESIGN §5).
"""

import hashlib
from dataclasses import replace
from typing import Any

from gyre_hpc.machines.base import CancelTimer, Note, SetTimer
from gyre_hpc.machines.call.actions import Arrived, Render
from gyre_hpc.machines.call.delivery import closed, connect, hang_up, mark_delivered, parse, refuse, say_more
from gyre_hpc.machines.call.live import Asked, CallState, LiveCall
from gyre_hpc.machines.call.lives import claim, diverges, is_over
from gyre_hpc.machines.call.node import Found, Node
from gyre_hpc.machines.call.recorded import DIVERGED, RecordedTree
from gyre_hpc.machines.call.sampling import seek
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.machines.call.shelf import pack_messages
from gyre_hpc.machines.call.stored import expand, was_cancelled
from gyre_hpc.protocol.journal import CallBegin, Replayed, Sampling

MOST_STOPS, LONGEST_STOP = 64, 1024
"""Stop sequences that engines take (engines/request.py); what they would refuse is refused here, where the client can hear why."""


def arrived(shard: Shard, request: Arrived) -> None:
    """Take a request, or refuse it."""
    if request.execution in shard.ended:
        refuse(shard, request.conn, 404, "execution_ended", f"execution {request.execution} has ended")
        return
    if over := is_over(shard, request):
        refuse(shard, request.conn, 404, "execution_ended", over)
        return
    if len(shard.conns.of(request.execution)) >= shard.settings.max_calls:
        refuse(shard, request.conn, 429, "too_many_calls", f"more than gateway.max_calls={shard.settings.max_calls} calls at once")
        return
    if reason := _wrong_stop(request.stop):
        refuse(shard, request.conn, 400, "invalid_stop", reason)
        return
    if call := was_cancelled(shard, request):
        refuse(shard, request.conn, 400, "cancelled", f"{call} was cancelled")
        return
    live = _same_call(shard, request) or _new_call(shard, request)
    if live is not None:
        live.asked = _asked(request)
        connect(shard, live, request.conn, request.stream)
        _take_up(shard, live)


def left(shard: Shard, conn: str) -> None:
    """A client closed its connection; its call goes on for a while."""
    known = closed(shard, conn)
    live = shard.live.get(known.call) if known is not None else None
    shard.emit(CancelTimer(f"alive/{conn}"))
    if live is not None and live.conn == conn:
        live.conn = ""
        shard.emit(SetTimer(f"abandon/{live.call}", shard.settings.abandon_s))


def not_said(shard: Shard, conn: str) -> None:
    """A piece of an answer did not reach its client, who must not hear what comes after it: as if it had left."""
    if conn in shard.conns:
        left(shard, conn)
        hang_up(shard, conn)


def rendered(shard: Shard, live: LiveCall, suffix: bytes) -> None:
    """The prompt is known: the call begins, unless the context is too long."""
    request, found = live.request, live.found
    assert request is not None and found is not None
    tree = shard.tree(live.execution)
    num_prompt = len(suffix) // 4 + (found.parent.num_prompt + found.parent.num_output if found.parent is not None else 0)
    limit = shard.settings.max_context
    if num_prompt >= limit:
        text = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {num_prompt} tokens. "
        text += "Please reduce the length of the messages."
        _drop(shard, live, "context_length_exceeded", text, {"tokens": num_prompt, "limit": limit})
        return
    left = _tokens_left(shard, tree)
    if left <= 0:
        _drop(shard, live, "token_limit_exceeded", _limit_text(shard, live.execution))
        return
    longest = shard.settings.max_output_tokens or limit
    budget = min(request.max_new_tokens or longest, longest, limit - num_prompt, left)
    begin = _begin(shard, live, request, found, suffix, budget)
    if found.parent is not None:
        mark_delivered(shard, found.parent)
    shard.persist(begin)
    tree.rendering.pop(live.call, None)
    live.node, live.request, live.found = tree.add(begin, found.opening), None, None
    if begin.branch:
        shard.emit(Note("branch", {"call": begin.call, "parent": begin.parent, "reason": begin.branch, "role": begin.role}))
    seek(shard, live)


def not_rendered(shard: Shard, live: LiveCall, reason: str) -> None:
    """A suffix that does not extend the recorded answer makes a branch; messages no template takes are an error."""
    request, found = live.request, live.found
    assert request is not None and found is not None
    if found.parent is None:
        _drop(shard, live, "invalid_messages", f"messages cannot be rendered: {reason}")
        return
    live.found = replace(found, parent=None, later=0, changed=False, drifted=True)
    live.render_key = shard.start("render", live.call, Render(request.messages, request.tools, None))


def resume(shard: Shard, node: Node) -> LiveCall:
    """Bookkeeping for a recorded call nobody works on."""
    state = CallState.ended if node.is_answered else CallState.suspended
    live = LiveCall(call=node.call, execution=node.execution, state=state, since=shard.now, node=node)
    live.issued = live.durable = node.num_output
    shard.live[node.call] = live
    return live


def _same_call(shard: Shard, request: Arrived) -> LiveCall | None:
    tree = shard.trees.get(request.execution)
    for call in tree.rendering if tree is not None else ():
        live = shard.live[call]
        if live.request is not None and not live.conn and live.request.request_hash == request.request_hash:
            return live
    taken = frozenset(conn.call for conn in shard.conns.of(request.execution).values() if not conn.is_inquiry)
    node = tree.same_request(request.request_hash, taken) if tree is not None else None
    if node is None:
        return None
    shard.emit(Note("call_joined", {"call": node.call, "num_output": node.num_output, "finish": node.finish}))
    return shard.live.get(node.call) or resume(shard, node)


def _new_call(shard: Shard, request: Arrived) -> LiveCall | None:
    """None: refused. In a later life of its execution it may be one that is recorded."""
    if request.previous:
        whole = expand(shard, request)
        if whole is None:
            refuse(shard, request.conn, 404, "previous_response_not_found", f"Previous response {request.previous!r} not found.")
            return None
        request = whole
    tree = shard.tree(request.execution)
    found = tree.find(request.turns, request.tools_digest)
    recorded = claim(shard, request, found)
    if recorded is not None:
        live = shard.live.get(recorded.call) or resume(shard, recorded)
        live.is_claimed = True
        return live
    if _tokens_left(shard, tree) <= 0:
        refuse(shard, request.conn, 400, "token_limit_exceeded", _limit_text(shard, request.execution))
        return None
    call = f"{request.execution}/{tree.next_ordinal}"
    tree.next_ordinal += 1
    live = LiveCall(call=call, execution=request.execution, state=CallState.rendering, since=shard.now, request=request, found=found)
    live.diverges = diverges(shard, request, found)
    shard.live[call] = live
    tree.rendering[call] = None
    if found.parent is None:
        action = Render(request.messages, request.tools, None)
    else:
        ended = found.parent.last_id() in shard.settings.stop_ids
        action = Render(request.messages[found.later :], (), ended, found.parent.thought)
    live.render_key = shard.start("render", call, action)
    shard.emit(SetTimer(f"deadline/{call}", shard.settings.call_deadline_s))
    return live


def recorded_claim(shard: Shard, record: Replayed) -> None:
    """That it was asked for again is durable."""
    live = shard.live.get(record.call)
    if live is not None and live.is_claimed:
        live.is_claimed = False
        _take_up(shard, live)


def _take_up(shard: Shard, live: LiveCall) -> None:
    """Somebody waits for this call (again)."""
    if live.is_claimed:
        return
    if live.state is CallState.ended and not live.parse_key:
        live.parse_key = shard.start("parse", live.call, parse(live, live.recorded.num_output))
    elif live.state is CallState.suspended:
        live.since, live.finish, live.refusals = shard.now, "", 0
        live.recorded.finish = ""
        shard.emit(SetTimer(f"deadline/{live.call}", shard.settings.call_deadline_s))
        seek(shard, live)
    say_more(shard, live)


def _asked(request: Arrived) -> Asked:
    messages = pack_messages(request.messages) if request.store else ()
    return Asked(
        tools=request.tools,
        store=request.store,
        messages=messages,
        previous=request.previous,
        instructed=request.instructed,
        echo=request.echo,
    )


def _wrong_stop(stop: tuple[str, ...]) -> str:
    """Why these stop sequences cannot be looked for; empty when they can."""
    if len(stop) > MOST_STOPS:
        return f"stop: {len(stop)} sequences; give at most {MOST_STOPS}"
    for word in stop:
        if not 0 < len(word) <= LONGEST_STOP:
            return f"stop: a sequence of {len(word)} characters; give 1 to {LONGEST_STOP}"
    return ""


def _tokens_left(shard: Shard, tree: RecordedTree) -> int:
    """Of what the execution may sample; calls that run side by side may each take all of it."""
    limit = shard.settings.max_tokens_per_execution
    return limit - tree.num_sampled if limit else 1 << 62


def _limit_text(shard: Shard, execution: str) -> str:
    limit = shard.settings.max_tokens_per_execution
    return f"{execution} has sampled its {limit} tokens (gateway.max_tokens_per_execution): nothing more is answered"


def _drop(shard: Shard, live: LiveCall, code: str, text: str, facts: dict[str, int] | None = None) -> None:
    """The request is wrong in itself: no call."""
    del shard.live[live.call]
    shard.tree(live.execution).rendering.pop(live.call, None)
    shard.emit(CancelTimer(f"deadline/{live.call}"), CancelTimer(f"abandon/{live.call}"))
    if live.conn:
        refuse(shard, live.conn, 400, code, text, facts)


def _begin(shard: Shard, live: LiveCall, request: Arrived, found: Found, suffix: bytes, budget: int) -> CallBegin:
    tree, settings = shard.tree(live.execution), shard.settings
    sampling = Sampling(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_new_tokens=budget,
        key=sampling_key(settings.run_seed, live.execution, _call_key(tree, found.parent, suffix)),
        stop=request.stop,
    )
    later = request.messages[found.later :]
    label = tree.branches.label(found, role=request.role, thread=request.thread)
    return CallBegin(
        call=live.call,
        execution=live.execution,
        parent=found.parent.call if found.parent is not None else None,
        suffix_ids=suffix,
        role=request.role,
        thread=request.thread,
        branch=DIVERGED if live.diverges and not tree.has_diverged else label,
        sampling=sampling,
        requested=request.requested,
        request_hash=request.request_hash,
        time=shard.unix(),
        tool_owner=tuple(turn.answers for turn in request.turns[found.later :] if turn.answers),
        context=found.context,
        changed=found.changed,
        protocol=request.protocol,
        thought=(found.parent is not None and found.parent.thought) or any(message.reasoning for message in later),
        logprobs=request.logprobs,
        likeness=request.likeness,
    )


def sampling_key(run_seed: int, execution: str, call_key: str) -> str:
    """128-bit key of the counter-based sampling, hex (DESIGN §5)."""
    return hashlib.blake2b(f"{run_seed}\n{execution}\n{call_key}".encode(), digest_size=16).hexdigest()


def _call_key(tree: RecordedTree, parent: Node | None, suffix: bytes) -> str:
    """Digest of the prompt ids and the ordinal among equal prompts."""
    hasher: Any = tree.hash_prompt(parent, suffix)
    return f"{hasher.hexdigest()}.{tree.equal_prompts(hasher)}"
