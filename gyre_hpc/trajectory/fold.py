"""Journal records -> finished calls, incrementally per execution.

Records of one call come in order from one writer, but a shard that was restarted may repeat the last ones, and a retry goes
on with the same call: then pieces overlap and a call has more than one end. Invariants (each has a test):
  - a position of a call's output is counted once; the piece journaled first wins, for it may have been delivered;
  - folding is the same whether records come at once, in pieces or twice, and in any order as long as pieces agree;
  - a delivered call with a hole is never handed on;
  - a call whose engine saw or produced other ids than are recorded is never trained on, delivered or not;
  - of an execution that several attempts recorded, what lives.py says counts; delivered is what its last life delivered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, ExecutionEnd, Record, TakenUp, VersionSpan, execution_of
from gyre_hpc.protocol.tensors import Floats, Ids, unpack_floats, unpack_ids
from gyre_hpc.trajectory.base import Call
from gyre_hpc.trajectory.lives import counting, last_life

_OF_EXECUTIONS = ExecutionEnd, TakenUp


class DamagedCall(ValueError):
    """The journal contradicts itself about this call. `call` is its id."""

    def __init__(self, call: str, reason: str) -> None:
        self.call = call
        super().__init__(f"journal of call {call}: {reason}")


@dataclass(kw_only=True, slots=True)
class _Pieces:
    """What is known of one call so far."""

    begin: CallBegin | None = None
    progress: list[CallProgress] = field(default_factory=list)
    end: CallEnd | None = None
    delivered: bool = False


class JournalFold:
    """Collects records; hands out the finished calls of an execution."""

    def __init__(self) -> None:
        self._records: dict[str, dict[int, list[Record]]] = {}
        """Execution -> attempt -> its records."""

    def add(self, record: Record, attempt: int = 1) -> None:
        """Take one record, in the order of its segment. Raises DamagedCall for a call id without an execution."""
        execution = execution_of(record)
        if not isinstance(record, _OF_EXECUTIONS):
            _split(record.call)
        self._records.setdefault(execution, {}).setdefault(attempt, []).append(record)

    def executions(self) -> list[str]:
        """Executions with at least one record of a call, in order of their first one."""
        return [execution for execution, by_attempt in self._records.items() if any(map(_has_calls, by_attempt.values()))]

    def has_ended(self, execution: str) -> bool:
        """Whether its shard takes no more calls of it, in the newest attempt that knows it."""
        by_attempt = self._records.get(execution)
        return by_attempt is not None and any(isinstance(record, ExecutionEnd) for record in by_attempt[max(by_attempt)])

    def execution(self, execution: str) -> list[Call]:
        """As calls_of."""
        return calls_of(self._records.get(execution, {}))

    def forget(self, execution: str) -> None:
        """Drop what is held of an execution that was consumed."""
        self._records.pop(execution, None)


def calls_of(by_attempt: Mapping[int, Sequence[Record]]) -> list[Call]:
    """Records of one execution by the attempt that wrote them, each in the order of its segments -> its finished calls in order of
    arrival; unfinished ones are left out. Raises DamagedCall."""
    records = counting(by_attempt)
    life = last_life(records)
    found: dict[str, _Pieces] = {}
    for record in records:
        if not isinstance(record, _OF_EXECUTIONS):
            _take(found.setdefault(record.call, _Pieces()), record, life)
    calls = [
        _call(name, pieces, pieces.begin, pieces.end)
        for name, pieces in found.items()
        if pieces.begin is not None and pieces.end is not None
    ]
    return sorted(calls, key=lambda call: call.ordinal)


def _has_calls(records: list[Record]) -> bool:
    return any(not isinstance(record, _OF_EXECUTIONS) for record in records)


def _take(pieces: _Pieces, record: Record, life: int) -> None:
    match record:
        case CallBegin():
            pieces.begin = pieces.begin or record
        case CallProgress():
            pieces.progress.append(record)
        case CallEnd():
            # A retry goes on with the same call: the end with more output is the later one.
            if pieces.end is None or record.num_output >= pieces.end.num_output:
                pieces.end = record
        case Delivered():
            pieces.delivered |= record.life == life


def _split(call: str) -> tuple[str, int]:
    execution, slash, ordinal = call.rpartition("/")
    if not slash or not ordinal.isdecimal():
        raise DamagedCall(call, "an id is <execution>/<ordinal>")
    return execution, int(ordinal)


def _call(name: str, pieces: _Pieces, begin: CallBegin, end: CallEnd) -> Call:
    joined = _join(name, pieces.progress)
    if pieces.delivered and len(joined.output_ids) != end.num_output:
        raise DamagedCall(name, f"delivered with {end.num_output} output tokens, but {len(joined.output_ids)} are journaled")
    return Call(
        id=name,
        execution=begin.execution,
        ordinal=_split(name)[1],
        parent=begin.parent,
        suffix_ids=unpack_ids(begin.suffix_ids),
        output_ids=joined.output_ids,
        logprobs=joined.logprobs,
        spans=joined.spans,
        oldest_kv=joined.oldest_kv,
        role=begin.role,
        branch=begin.branch,
        finish=end.finish,
        delivered=pieces.delivered and not end.engine_digest,
        temperature=begin.sampling.temperature,
        malformed=end.malformed,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Joined:
    output_ids: Ids
    logprobs: Floats
    spans: tuple[VersionSpan, ...]
    oldest_kv: tuple[tuple[int, Version], ...]


def _join(name: str, progress: list[CallProgress]) -> _Joined:
    """Pieces in order of arrival -> one output. What lies behind a hole is left out."""
    ids: list[Ids] = []
    logprobs: list[Floats] = []
    spans: list[VersionSpan] = []
    oldest_kv: list[tuple[int, Version]] = []
    covered = 0
    for piece, new_ids, new_logprobs in _contiguous(name, progress):
        skip, end = covered - piece.start, piece.start + len(new_ids)
        ids.append(new_ids[skip:])
        logprobs.append(new_logprobs[skip:])
        _extend_spans(name, spans, piece, covered, end)
        _extend_kv(oldest_kv, end, piece.oldest_kv)
        covered = end
    return _Joined(
        output_ids=np.concatenate(ids) if ids else np.zeros(0, np.int32),
        logprobs=np.concatenate(logprobs) if logprobs else np.zeros(0, np.float32),
        spans=tuple(spans),
        oldest_kv=tuple(oldest_kv),
    )


def _contiguous(name: str, progress: list[CallProgress]) -> Iterator[tuple[CallProgress, Ids, Floats]]:
    """Pieces that each begin within what came before and add to it."""
    covered = 0
    early: list[tuple[CallProgress, Ids, Floats]] = []
    for piece in progress:
        ids, logprobs = unpack_ids(piece.output_ids), unpack_floats(piece.logprobs)
        if len(ids) != len(logprobs):
            raise DamagedCall(name, f"{len(ids)} tokens but {len(logprobs)} log-probs from position {piece.start}")
        early.append((piece, ids, logprobs))
        # Usually one pass: pieces come in order, so that `early` holds the newest alone.
        while usable := [one for one in early if one[0].start <= covered]:
            first = usable[0]
            early = [one for one in early if one is not first]
            if (end := first[0].start + len(first[1])) > covered:
                yield first
                covered = end


def _extend_spans(name: str, spans: list[VersionSpan], piece: CallProgress, start: int, end: int) -> None:
    """Add the part of the piece's spans that lies in [start, end); they must cover it."""
    at = start
    for span in sorted(piece.spans, key=lambda one: one.start):
        if span.start > at or span.end <= at:
            continue
        upto = min(span.end, end)
        if spans and spans[-1].version == span.version:
            spans[-1] = VersionSpan(span.version, spans[-1].start, upto)
        else:
            spans.append(VersionSpan(span.version, at, upto))
        at = upto
    if at < end:
        raise DamagedCall(name, f"version spans cover [{start}, {at}) instead of [{start}, {end})")


def _extend_kv(oldest_kv: list[tuple[int, Version]], end: int, version: Version) -> None:
    if oldest_kv and oldest_kv[-1][1] == version:
        oldest_kv.pop()
    oldest_kv.append((end, version))
