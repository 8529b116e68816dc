"""What clients get: keep-alives, pieces of durable text, the whole answer or a refusal.

Invariants: text leaves only when the progress record with its tokens is durable, the answer only when CallEnd is; a call is
recorded as delivered once its whole answer was written to a client, or a later call builds on it.
"""

from dataclasses import replace

from gyre_hpc.chat.base import Answer
from gyre_hpc.machines.base import CancelTimer, SetTimer, Start
from gyre_hpc.machines.call.actions import HangUp, KeepAlive, Parse, Refuse, Reply, Say
from gyre_hpc.machines.call.live import CallState, Conn, LiveCall
from gyre_hpc.machines.call.node import Node
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.protocol.journal import Delivered


def connect(shard: Shard, live: LiveCall, conn: str, stream: bool) -> None:
    """This connection waits for this call's answer from now on."""
    shard.conns[conn] = Conn(live.execution, live.call, stream)
    live.conn, live.said, live.said_reasoning = conn, "", ""
    first_s = shard.settings.keepalive_s if stream else shard.settings.hold_s
    shard.emit(CancelTimer(f"abandon/{live.call}"), SetTimer(f"alive/{conn}", first_s))


def keep_alive(shard: Shard, conn: str) -> None:
    """Nothing was said for a while."""
    known = shard.conns.get(conn)
    if known is not None and not known.is_closing:
        known.is_held |= not known.stream
        shard.start("alive", conn, KeepAlive(conn, known.call))
        shard.emit(SetTimer(f"alive/{conn}", shard.settings.keepalive_s))


def say_more(shard: Shard, live: LiveCall) -> None:
    """There may be durable text a streaming client has not got: parse it, one parse at a time."""
    conn = shard.conns.get(live.conn)
    if conn is None or not conn.stream or live.delta_key or not live.durable or live.state not in _TALKING or live.is_claimed:
        return
    live.delta_key = shard.start("delta", live.call, parse(live, live.durable, partial=True))


def parse(live: LiveCall, num: int, *, partial: bool = False) -> Parse:
    """Read the first `num` output tokens as an answer to its request."""
    node = live.recorded
    return Parse(bytes(node.output[: 4 * num]), node.sampling.stop, partial, live.asked.tools, live.call)


def said(shard: Shard, live: LiveCall, answer: Answer) -> None:
    """Durable tokens are parsed as a partial answer: say what is new of it."""
    live.delta_key = ""
    if not live.conn or live.state not in _TALKING:
        return
    # Thinking that begins anew after text waits for the end: no protocol takes it back into the middle.
    reasoning = "" if live.said else _news(live.said_reasoning, answer.reasoning)
    text = _news(live.said, answer.content)
    if reasoning or text:
        shard.start("say", live.conn, Say(live.conn, live.call, text, reasoning))
        shard.emit(SetTimer(f"alive/{live.conn}", shard.settings.keepalive_s))
        live.said, live.said_reasoning = live.said + text, live.said_reasoning + reasoning


def _news(told: str, whole: str) -> str:
    return whole[len(told) :] if whole.startswith(told) else ""


def final(live: LiveCall, answer: Answer) -> Answer:
    """The answer as the client will have it: what was said cannot be taken back."""
    content = answer.content if answer.content.startswith(live.said) else live.said
    reasoning = answer.reasoning if answer.reasoning.startswith(live.said_reasoning) else live.said_reasoning
    return replace(answer, content=content, reasoning=reasoning)


def reply(shard: Shard, live: LiveCall) -> None:
    """Send the answer to whoever waits for it; the call itself is over."""
    assert live.answer is not None
    if live.is_claimed:
        return
    node, conn = live.recorded, live.conn
    shard.live.pop(live.call, None)
    shard.emit(CancelTimer(f"deadline/{live.call}"), CancelTimer(f"abandon/{live.call}"))
    if not conn:
        return
    action = Reply(
        conn=conn,
        call=live.call,
        answer=final(live, live.answer),
        finish=node.finish,
        prompt_tokens=node.num_prompt,
        completion_tokens=node.num_output,
        cached_tokens=node.num_cached,
        ids=bytes(node.output) if node.logprobs is not None else b"",
        logprobs=bytes(node.logprobs or b""),
        echo=live.asked.echo,
        previous=live.asked.previous,
        created=int(node.began_at),
    )
    live.conn = ""
    last_words(shard, conn, Start(f"reply/{conn}", action))


def refuse(shard: Shard, conn: str, status: int, code: str, text: str, facts: dict[str, int] | None = None) -> None:
    """End a connection with an error."""
    last_words(shard, conn, Start(f"refuse/{conn}", Refuse(conn, status, code, text, facts or {})))


def closed(shard: Shard, conn: str) -> Conn | None:
    """The last words were written, or never will be."""
    shard.emit(CancelTimer(f"words/{conn}"))
    return shard.conns.pop(conn)


def hang_up(shard: Shard, conn: str) -> None:
    """Its client does not read: breaking the connection ends what waits for it."""
    shard.start("hangup", conn, HangUp(conn))


def not_told(shard: Shard, conn: str) -> None:
    """Its last words failed: a client that is there all the same must not wait for them."""
    closed(shard, conn)
    hang_up(shard, conn)


def replied(shard: Shard, conn: str) -> None:
    """The whole answer was written."""
    known = closed(shard, conn)
    tree = shard.trees.get(known.execution) if known is not None else None
    if known is not None and tree is not None:
        mark_delivered(shard, tree.nodes[known.call])


def mark_delivered(shard: Shard, node: Node) -> None:
    """In the present life; what only an earlier one got is not delivered."""
    if not node.delivered and node.life == shard.tree(node.execution).life:
        node.delivered = True
        shard.persist(Delivered(node.call, shard.unix(), node.life))


def last_words(shard: Shard, conn: str, start: Start) -> None:
    """Nothing is said to this connection afterwards, and nothing twice."""
    known = shard.conns.get(conn)
    if known is not None:
        if known.is_closing:
            return
        known.is_closing = True
    shard.emit(CancelTimer(f"alive/{conn}"), SetTimer(f"words/{conn}", shard.settings.unread_s), start)


_TALKING = (CallState.waiting, CallState.sampling)
