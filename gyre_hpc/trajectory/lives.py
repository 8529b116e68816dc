"""Which records of an execution count, when several attempts of the run wrote some.

An execution that is taken up goes on under its own name in another attempt, while a process of an earlier one may still be writing.
The newest attempt's first `TakenUp` says what it had read: that counts of earlier attempts, and nothing else does. Invariants (each
has a test):
  - what counts of an earlier attempt never changes once a later one took the execution up;
  - every position of a call's output comes from one attempt alone.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gyre_hpc.protocol.journal import CallEnd, CallProgress, Delivered, ExecutionEnd, Known, Record, TakenUp


def counting(by_attempt: Mapping[int, Sequence[Record]]) -> list[Record]:
    """Records of one execution by the attempt that wrote them -> those that count, oldest attempt first."""
    if not by_attempt:
        return []
    newest = max(by_attempt)
    taken = next((record for record in by_attempt[newest] if isinstance(record, TakenUp)), None)
    earlier = {attempt: records for attempt, records in by_attempt.items() if attempt != newest}
    if taken is None:
        return [*counting(earlier), *by_attempt[newest]]
    known = {one.call: one for one in taken.known}
    counted = counting({attempt: records for attempt, records in earlier.items() if attempt in taken.attempts})
    return [*(cut for record in counted if (cut := _cut(record, known)) is not None), *by_attempt[newest]]


def last_life(records: Sequence[Record]) -> int:
    """The newest life that records speak of; 0: the execution was never taken up."""
    return max((record.life for record in records if isinstance(record, TakenUp)), default=0)


def _cut(record: Record, known: Mapping[str, Known]) -> Record | None:
    """As much of a record as counts."""
    if isinstance(record, TakenUp):
        return record
    if isinstance(record, ExecutionEnd):
        return None
    call = known.get(record.call)
    if call is None:
        return None
    match record:
        case CallProgress(start=start):
            return _cut_progress(record, call.num_output - start)
        case CallEnd(num_output=num_output):
            return record if call.finish and num_output <= call.num_output else None
        case Delivered():
            # To a process that is gone: a new life has begun since.
            return None
    return record


def _cut_progress(record: CallProgress, most: int) -> CallProgress | None:
    """Its first `most` tokens."""
    if most >= len(record.output_ids) // 4:
        return record
    if most <= 0:
        return None
    spans = tuple(
        msgspec.structs.replace(span, end=min(span.end, record.start + most)) for span in record.spans if span.start < record.start + most
    )
    return msgspec.structs.replace(record, output_ids=record.output_ids[: 4 * most], logprobs=record.logprobs[: 4 * most], spans=spans)
