"""Tokens as they come: every one is appended once, at its position, and goes to the journal within an interval."""

from gyre_hpc.machines.base import CancelTimer, Note, SetTimer, Stop
from gyre_hpc.machines.call.actions import Tokens
from gyre_hpc.machines.call.live import LiveCall, Piece
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.protocol.journal import CallProgress, VersionSpan


def receive(shard: Shard, live: LiveCall, tokens: Tokens) -> bool:
    """Append what is new in `tokens`; False when tokens before it are missing."""
    node = live.recorded
    known, count = node.num_output, len(tokens.ids) // 4
    if tokens.start > known:
        # Received, and neither journaled nor gone on from: another attempt draws them again.
        _fault(shard, live, "lost", count)
        return False
    end = min(tokens.start + count, node.sampling.max_new_tokens)
    if tokens.start < known:
        _fault(shard, live, "resampled", min(known, tokens.start + count) - tokens.start)
    if end <= known:
        return True
    if live.piece.oldest_kv not in (None, tokens.oldest_kv):
        flush(shard, live)
    if live.issued == known:
        shard.emit(SetTimer(f"progress/{live.call}", shard.settings.progress_s))
    if not shard.has_token:
        shard.has_token = True
        shard.emit(Note("first_token", {"call": live.call}))
    _append(live, tokens, known, end)
    shard.tree(live.execution).num_sampled += end - known
    shard.count(live.execution, "sampled", end - known)
    if end - live.issued >= shard.settings.progress_tokens:
        flush(shard, live)
    return True


def flush(shard: Shard, live: LiveCall) -> None:
    """Hand every token that is not yet in the journal to it."""
    node, piece, start = live.recorded, live.piece, live.issued
    if node.num_output == start:
        return
    assert piece.oldest_kv is not None, "tokens without their oldest KV version"
    now = shard.unix()
    node.took(now)
    shard.persist(
        CallProgress(
            call=live.call,
            start=start,
            output_ids=bytes(node.output[4 * start :]),
            logprobs=bytes(piece.logprobs),
            spans=tuple(piece.spans),
            oldest_kv=piece.oldest_kv,
            cell=node.cells[-1],
            time=now,
        )
    )
    live.issued, live.piece = node.num_output, Piece()
    shard.emit(CancelTimer(f"progress/{live.call}"))


def release_cell(shard: Shard, live: LiveCall, *, stop: bool) -> None:
    """The attempt is over (or with `stop`, is to be): what it gave goes to the journal, its cell's load is given back."""
    if live.row is None:
        return
    if stop:
        shard.emit(Stop(live.attempt_key))
    shard.routing.over(live.call)
    shard.emit(CancelTimer(f"gone/{live.call}"))
    live.row, live.attempt_key, live.has_tokens = None, "", False
    flush(shard, live)


def _fault(shard: Shard, live: LiveCall, what: str, num: int) -> None:
    """What must never happen is counted, and told by itself: a count dies with its process."""
    shard.count(live.execution, what, num)
    shard.emit(Note("token_fault", {"call": live.call, "what": what, "num": num}))


def _append(live: LiveCall, tokens: Tokens, begin: int, end: int) -> None:
    node, piece = live.recorded, live.piece
    cut = slice(4 * (begin - tokens.start), 4 * (end - tokens.start))
    node.output += tokens.ids[cut]
    if node.logprobs is not None:
        node.logprobs += tokens.logprobs[cut]
    piece.logprobs += tokens.logprobs[cut]
    piece.oldest_kv = tokens.oldest_kv
    for span in tokens.spans:
        _extend(piece.spans, VersionSpan(span.version, max(span.start, begin), min(span.end, end)))
    if node.first_version is None:
        node.first_version = tokens.spans[0].version
    newest = max(span.version for span in tokens.spans)
    node.newest = newest if node.newest is None else max(node.newest, newest)


def _extend(spans: list[VersionSpan], span: VersionSpan) -> None:
    if span.start >= span.end:
        return
    if spans and spans[-1].version == span.version and spans[-1].end == span.start:
        spans[-1] = VersionSpan(span.version, spans[-1].start, span.end)
    else:
        spans.append(span)
