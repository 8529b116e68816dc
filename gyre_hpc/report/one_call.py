"""One model call in full: what was rendered for it, what was sampled, what was sent, by which weights."""

from typing import Any

import msgspec

from gyre_hpc.chat.base import Answer, ChatFormat
from gyre_hpc.machines.call.minted import as_sent
from gyre_hpc.protocol.journal import Sampling
from gyre_hpc.protocol.tensors import unpack_ids
from gyre_hpc.report.calls import Pieces, Row, texts


class Span(msgspec.Struct, frozen=True):
    """Output tokens [start, end)."""

    start: int
    end: int
    what: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one call."""

    row: Row
    time: float
    """Unix seconds of its begin."""
    suffix_ids: tuple[int, ...]
    suffix: str
    """What was rendered for it, as text."""
    output_ids: tuple[int, ...]
    output: str
    answer: Answer | None
    """As sent; None while it runs, without an answer, or where its chat format is not at hand."""
    versions: tuple[Span, ...]
    malformed: tuple[Span, ...]
    sampling: Sampling
    requested: dict[str, Any]
    """Sampling the harness asked for; not used."""
    tool_owner: tuple[str, ...]
    """Tool calls that this prompt answers."""
    changed: bool
    """The parent's answer came back in other words."""
    cached: int
    reprefilled: int
    stopped_by: str
    digest: str
    engine_digest: str
    """The engine's own, where it differs."""


def shown(pieces: Pieces, chat: ChatFormat | None) -> Shown:
    """Decode a call. `chat` None: ids alone."""
    begin, end = pieces.begin, pieces.end
    suffix, output = unpack_ids(begin.suffix_ids).tolist(), unpack_ids(pieces.output).tolist()
    answer = None
    if chat is not None and end is not None and end.finish not in ("abandoned", "failed"):
        answer = as_sent(begin.call, chat.parse(output, stop=begin.sampling.stop))
    return Shown(
        row=pieces.row,
        time=begin.time,
        suffix_ids=tuple(suffix),
        suffix=texts(suffix, chat),
        output_ids=tuple(output),
        output=texts(output, chat),
        answer=answer,
        versions=_versions(pieces),
        malformed=tuple(
            Span(start, end, texts(output[start:end], chat)) for start, end in (end.malformed_spans if end is not None else ())
        ),
        sampling=begin.sampling,
        requested=begin.requested,
        tool_owner=begin.tool_owner,
        changed=begin.changed,
        cached=end.num_cached if end is not None else 0,
        reprefilled=end.num_reprefilled if end is not None else 0,
        stopped_by=end.stopped_by if end is not None else "",
        digest=end.digest if end is not None else "",
        engine_digest=end.engine_digest if end is not None else "",
    )


def describe(one: Shown) -> str:
    """For people; the texts are quoted, so that marks and line ends show."""
    row, end = one.row, "delivered" if one.row.delivered else "not delivered"
    why = row.branch or ("goes on" if row.parent else "begins a conversation")
    lines = [
        f"call       {row.call}  ({row.role}, thread {row.thread or '-'}, {row.protocol or 'protocol unknown'})",
        f"parent     {row.parent or '-'}  ({why}{', whose answer came back in other words' if one.changed else ''})",
        f"tokens     prompt {row.prompt}, of it new {row.suffix}, cached {one.cached}; output {row.output}, prefilled again {one.reprefilled}",
        f"finish     {row.finish or 'runs'}{f' at {one.stopped_by!r}' if one.stopped_by else ''}; {end}; cells {', '.join(row.cells) or '-'}",
        f"sampling   {_sampling(one)}",
        *(f"version    [{span.start}, {span.end}) {span.what}" for span in one.versions),
        *(f"answers    {call}" for call in one.tool_owner),
        f"digest     {one.digest or '-'}{f'; the ENGINE has {one.engine_digest}: never trained on' if one.engine_digest else ''}",
        f"rendered   {one.suffix!r}",
        f"sampled    {one.output!r}",
        *(f"malformed  [{span.start}, {span.end}) {span.what!r}" for span in one.malformed),
    ]
    if one.answer is not None:
        lines += [f"reasoning  {one.answer.reasoning!r}"] if one.answer.reasoning else []
        lines += [f"sent       {one.answer.content!r}"]
        lines += [f"sent call  {call.id}: {call.name} {call.arguments}" for call in one.answer.tool_calls]
    return "\n".join(lines)


def _sampling(one: Shown) -> str:
    used = one.sampling
    asked = ", ".join(f"{name}={value}" for name, value in one.requested.items())
    stop = f", stop {list(used.stop)}" if used.stop else ""
    return f"temperature {used.temperature}, top_p {used.top_p}, top_k {used.top_k}, at most {used.max_new_tokens}{stop}; asked for: {asked or '-'}"


def _versions(pieces: Pieces) -> tuple[Span, ...]:
    spans: list[Span] = []
    for piece in pieces.progress:
        for span in piece.spans:
            if spans and spans[-1].what == str(span.version) and spans[-1].end >= span.start:
                spans[-1] = Span(spans[-1].start, max(spans[-1].end, span.end), spans[-1].what)
            else:
                spans.append(Span(span.start, span.end, str(span.version)))
    return tuple(spans)
