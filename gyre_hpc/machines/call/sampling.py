"""Where a call's tokens come from: one attempt at a time, the next one goes on from the tokens so far.

Invariants: positions go on and the budget shrinks, whatever happened to the cells before; a call never goes on at a cell
with older weights than its newest token; a late word of an attempt that is over changes nothing.
"""

from collections.abc import Iterable

from gyre_hpc.machines.base import CancelTimer, Note, SetTimer
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt, Tokens
from gyre_hpc.machines.call.ending import close, fail
from gyre_hpc.machines.call.live import CallState, LiveCall
from gyre_hpc.machines.call.node import Node
from gyre_hpc.machines.call.progress import receive, release_cell
from gyre_hpc.machines.call.routing import Wanted
from gyre_hpc.machines.call.shard import Shard, purpose_of
from gyre_hpc.protocol.to_gateway import Row

MOST_REFUSALS = 3
_LOST = frozenset({"CellLost", "TimeoutError"})
_BUSY = frozenset({"EngineBusy", "StaleMessage"})


def seek(shard: Shard, live: LiveCall) -> None:
    """The call needs tokens: start an attempt, or wait for a cell."""
    if _is_complete(shard, live):
        return
    shard.wait_for_cell(live)
    _try_start(shard, live)


def seek_all(shard: Shard) -> None:
    """Something changed for those that wait."""
    for call in list(shard.waiting):
        _try_start(shard, shard.live[call])


def progressed(shard: Shard, live: LiveCall, tokens: Tokens) -> None:
    """The attempt that runs gave tokens."""
    row, node = live.row, live.recorded
    assert row is not None
    if not live.has_tokens:
        live.has_tokens = True
        if node.num_output == 0:
            node.num_cached = tokens.cached
        shard.routing.served(row.cell)
        shard.routing.began(shard.now, live.call, max(node.num_prompt + node.num_output - tokens.cached, 0))
        _count_reprefill(shard, live, tokens)
        node.moved_to, node.term = "", row.term
        if row.cell not in node.cells[-1:]:
            node.cells.append(row.cell)
    if not receive(shard, live, tokens):
        leave_cell(shard, live, "gap", f"{row.cell} skipped tokens before {tokens.start}", stop=True)


def finished(shard: Shard, live: LiveCall, end: AttemptEnd) -> None:
    """The engine ended the attempt itself."""
    _compare(shard, live, end.digest)
    if end.finish == "abort":
        _moved(shard, live.recorded, end.moved_to)
        where = f"; its KV went to {end.moved_to}" if end.moved_to else ""
        leave_cell(shard, live, "abort", f"the engine ended it{where}", stop=False)
        return
    shard.routing.ended(shard.now, live.call, live.recorded.num_output)
    release_cell(shard, live, stop=False)
    close(shard, live, end.finish)


def failed(shard: Shard, live: LiveCall, kind: str, reason: str) -> None:
    """The attempt failed: a closed gate, a lost cell, or a refusal of the request itself."""
    if kind in _LOST:
        # What the engine sampled and could not send is drawn again from the same counters; a stream loses at most its newest token.
        shard.count(live.execution, "unreceived", 1)
    elif kind not in _BUSY:
        live.refusals += 1
    if live.refusals >= MOST_REFUSALS:
        release_cell(shard, live, stop=False)
        fail(shard, live, f"engines refused it: {reason}")
        return
    leave_cell(shard, live, kind, reason, stop=False)


def leave_cell(shard: Shard, live: LiveCall, kind: str, reason: str, *, stop: bool) -> None:
    """Bar the cell and go on elsewhere."""
    row = live.row
    assert row is not None
    hold_s = shard.routing.bar(shard.now, row.cell, row.term)
    shard.emit(
        SetTimer(f"barred/{row.cell}", hold_s),
        Note("call_rerouted", {"call": live.call, "cell": row.cell, "term": row.term, "why": kind, "reason": reason}),
    )
    release_cell(shard, live, stop=stop)
    seek(shard, live)


def rehome(shard: Shard, moved: Iterable[tuple[str, str]]) -> None:
    """KV of conversations went to other cells. What runs now is where its tokens come from, and what its engine aborts it is told."""
    for call, cell in moved:
        tree, live = shard.trees.get(call.rpartition("/")[0]), shard.live.get(call)
        node = tree.nodes.get(call) if tree is not None else None
        if node is not None and (live is None or live.row is None):
            _moved(shard, node, cell)


def _moved(shard: Shard, node: Node, cell: str) -> None:
    """Its KV is at `cell` now, as that is now; without a name it is where it was."""
    node.moved_to = cell
    if cell:
        row = shard.routing.rows.get(cell)
        node.term = row.term if row is not None else None


def watch_gone(shard: Shard) -> None:
    """After a new table: attempts at cells it lacks should end by themselves, soon."""
    for live in shard.live.values():
        if live.row is None:
            continue
        if shard.routing.has(live.row.cell, live.row.term):
            shard.emit(CancelTimer(f"gone/{live.call}"))
        else:
            shard.emit(SetTimer(f"gone/{live.call}", shard.settings.gone_s))


def gone(shard: Shard, live: LiveCall) -> None:
    """The cell left the table and the attempt did not end: it will not."""
    if live.row is not None and not shard.routing.has(live.row.cell, live.row.term):
        shard.count(live.execution, "unreceived", 1)
        leave_cell(shard, live, "gone", "the cell left the table", stop=True)


def _is_complete(shard: Shard, live: LiveCall) -> bool:
    """All its tokens came before its end was told: close it instead of sampling beyond it."""
    node = live.recorded
    if node.last_id() in shard.settings.stop_ids:
        close(shard, live, "stop")
    elif node.num_output >= node.sampling.max_new_tokens:
        close(shard, live, "length")
    else:
        return False
    return True


def _try_start(shard: Shard, live: LiveCall) -> None:
    if shard.journal.full:
        return
    node = live.recorded
    home, num = shard.homes.home_of(node, shard.routing.rows), node.num_prompt + node.num_output
    purpose = purpose_of(live.execution)
    wanted = Wanted(purpose=purpose, not_older_than=node.newest, num_tokens=num, home=home.cell, held=min(home.num_tokens, num))
    row = shard.routing.choose(shard.now, wanted)
    if row is None:
        return
    del shard.waiting[live.call]
    live.state, live.row, live.has_tokens = CallState.sampling, row, False
    shard.routing.sent(shard.now, live.call, row, wanted, node.num_output)
    shard.homes.opened(node, row)
    shard.has_news = True
    live.attempt_key = shard.start("attempt", live.call, _attempt(shard, live, row))


def _attempt(shard: Shard, live: LiveCall, row: Row) -> EngineAttempt:
    node = live.recorded
    return EngineAttempt(
        call=live.call,
        cell=row.cell,
        url=row.url,
        term=row.term,
        version=row.version,
        prompt=(*node.prompt(), bytes(node.output)),
        max_new_tokens=node.sampling.max_new_tokens - node.num_output,
        sampling=node.sampling,
        position=node.num_output,
        stop_ids=shard.settings.stop_ids,
        deadline_s=max(1.0, live.since + shard.settings.call_deadline_s - shard.now),
        # U+FFFD stands for bytes that are no text: engines refuse it, and the answer's text is cut there all the same.
        stop=tuple(word for word in node.sampling.stop if "\ufffd" not in word),
    )


def _compare(shard: Shard, live: LiveCall, digest: str) -> None:
    """Ids the engine saw and produced, and ids recorded. Where they differ the answer is given all the same, and never trained on."""
    node = live.recorded
    if digest and digest != node.running_digest():
        node.engine_digest = digest
        shard.count(live.execution, "digest_mismatch", 1)
        shard.emit(Note("token_fault", {"call": live.call, "what": "digest_mismatch", "num": node.num_output}))


def _count_reprefill(shard: Shard, live: LiveCall, tokens: Tokens) -> None:
    node = live.recorded
    if node.num_output == 0:
        return
    num = max(0, node.num_prompt + node.num_output - tokens.cached)
    node.num_reprefilled += num
    shard.count(live.execution, "reprefilled", num)
