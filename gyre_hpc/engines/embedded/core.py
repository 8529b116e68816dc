"""What the compute thread does: continuous batching with chunked prefill, retraction, and weight updates between steps.

One `step` prefills up to `prefill_chunk` tokens of the oldest waiting sequences, then decodes one token of every running
sequence; all new tokens are drawn in one go. Nothing here knows threads, sockets or the loop.

Invariants:
  - every token is sampled under exactly one version, recorded in its span, and KV of another version is attended to only
    with keep_kv, recorded in oldest_kv;
  - the oldest sequence is never retracted, and alone it always fits: no deadlock;
  - a retracted sequence keeps its tokens and its place in the order of arrival;
  - what is computed, sampled, held and retracted depends on the jobs given (jobs.py) and on nothing else, the clock
    included: cores that are given the same jobs between the same steps stay the same.
"""

import bisect
import itertools
from collections.abc import Callable

import torch

from gyre_hpc.engines.answer import Piece, aborted
from gyre_hpc.engines.embedded.forward import Forward
from gyre_hpc.engines.embedded.memory import KVMemory
from gyre_hpc.engines.embedded.sampling import next_tokens
from gyre_hpc.engines.embedded.sequence import Sequence, Stage
from gyre_hpc.engines.embedded.weights import Weights
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.stopping import Decode, Stopping
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.protocol.identity import Version


class EngineCore:
    """Single-threaded. Asleep until `wake`.

    snapshot: the whole weights of a version; raises KeyError. decode: looks for stop strings.
    """

    def __init__(
        self,
        new_memory: Callable[[], KVMemory],
        *,
        forward: Forward,
        snapshot: Callable[[Version], Parameters],
        decode: Decode | None,
        max_batch: int,
        prefill_chunk: int,
        keep_kv: bool,
        stream_tokens: int,
        stream_s: float,
        now: Callable[[], float],
    ) -> None:
        self._new_memory, self._forward, self._decode_ids, self._now = new_memory, forward, decode, now
        self._max_batch, self._prefill_chunk, self._keep_kv = max_batch, prefill_chunk, keep_kv
        self._stream_tokens, self._stream_s = stream_tokens, stream_s
        self.memory: KVMemory | None = None
        self.weights = Weights(forward, snapshot)
        self.is_paused = False
        self.is_starved = False
        """Nothing runs, and what waits has no room, as pages are held for other cells. Any job may change that."""
        self._kv_numbers = itertools.count(1)
        self._live: dict[int, Sequence] = {}
        self._waiting: list[Sequence] = []
        self._prefilling: Sequence | None = None
        self._decoding: list[Sequence] = []
        """Index = row."""
        self.trace = 0
        """Of all tokens sampled, in order: equal on cores that did the same."""
        self.counters = {"sampled": 0, "prefilled": 0, "cached": 0, "decode_steps": 0, "retracted": 0}
        self.step_s: dict[int, float] = {}
        """Mean seconds of a decode step by number of running sequences (newest steps weigh most)."""

    @property
    def version(self) -> Version:
        """Served; while asleep, served last."""
        return self.weights.version

    @property
    def has_work(self) -> bool:
        return bool(self._live) and not (self.is_paused or self.is_starved) and self.memory is not None

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def num_bytes(self) -> int:
        """Held by KV and weights."""
        return (self.memory.num_bytes() if self.memory else 0) + self.weights.num_bytes()

    def add(self, number: int, request: Request, prescribed: list[int] | None = None) -> list[Piece]:
        """Take a call; it may be over at once."""
        stopping = Stopping(request, self._decode_ids, longest=None if prescribed is None else len(prescribed))
        seq = Sequence(number=number, request=request, ids=list(request.input_ids), stopping=stopping, prescribed=prescribed)
        finish = seq.stopping.at_once()
        if finish is not None:
            return [seq.piece(finish)]
        seq.sent_at_s = self._now()
        self._live[seq.number] = seq
        self._waiting.append(seq)
        return []

    def abort(self, number: int, reason: str, moved_to: str = "") -> list[Piece]:
        """End a sequence with its tokens so far; nothing when it is already over."""
        seq = self._live.get(number)
        return [] if seq is None else [self._end(seq, aborted(reason, moved_to))]

    def pause(self, retract: bool) -> None:
        self.is_paused = True
        if retract:
            self.retract_all()

    def sleep(self) -> None:
        assert not self._live, f"sleep with {len(self._live)} live requests"
        assert self.memory is None or not self.memory.pages.is_lending, "sleep while other cells read or write pages"
        self.memory = None
        self.weights.drop()

    def wake(self, version: Version) -> None:
        """Serve the staged version."""
        assert self.memory is None, "already awake"
        self.weights.take(version)
        self.memory, self.is_paused = self._new_memory(), False
        # A number is never used again: a late word about an old lease must not end a new one.
        self.memory.pages.numbers = self._kv_numbers

    def update(self, version: Version) -> list[Piece]:
        """Go over to the staged version. Returns what the old one sampled and was not sent. A snapshot never changes, so the
        version served already needs nothing."""
        assert self.memory is not None, "asleep"
        if version == self.version:
            return []
        pieces = [seq.piece(None) for seq in self._live.values() if seq.num_sent < seq.num_output]
        if not self._keep_kv:
            self.retract_all()
            self.memory.forget_version()
        self.weights.take(version)
        return pieces

    def retract_all(self) -> None:
        """Running sequences give their KV back and wait."""
        for seq in [*self._decoding, *([self._prefilling] if self._prefilling else [])]:
            self._retract(seq)

    def flush_cache(self) -> bool:
        if self._live or self.memory is None:
            return False
        self.memory.table.forget_cached()
        return True

    def step(self) -> list[Piece]:
        """Returns what is to be sent."""
        if not self.has_work:
            return []
        self._grow_or_retract()
        ready = self._prefill_some()
        begun, num_decoding = self._now(), len(self._decoding)
        stepped = [*self._decoding, *(seq for seq, _ in ready)]
        if not stepped:
            return []
        logits = [row[None] for _, row in ready]
        if num_decoding:
            logits.insert(0, self._decode())
        merged = logits[0] if len(logits) == 1 else torch.cat(logits)
        tokens, logprobs = next_tokens(merged, stepped)
        if num_decoding and not ready:
            self._measure(num_decoding, self._now() - begun)
        pieces = self._take_tokens(stepped, tokens, logprobs)
        for seq, _ in ready:
            if seq.stage is Stage.prefilling:
                self._start_decoding(seq)
        return pieces

    def _grow_or_retract(self) -> None:
        """Every running sequence gets room for one more token; the youngest make it."""
        assert self.memory is not None
        page_size = self.memory.page_size
        needing = [seq for seq in self._decoding if seq.num_kv == len(seq.pages) * page_size]
        for seq in sorted(needing, key=_by_age):
            while seq.stage is Stage.decoding and not self.memory.grow(seq):
                running = [*self._decoding, *([self._prefilling] if self._prefilling else [])]
                self._retract(max(running, key=_by_age))

    def _prefill_some(self) -> list[tuple[Sequence, torch.Tensor]]:
        """Compute up to `prefill_chunk` context tokens. Returns sequences whose context is complete, with the logits
        [V] of their next token. One at a time, so that a second prompt finds the pages of the first."""
        assert self.memory is not None and self.weights.prepared is not None
        ready: list[tuple[Sequence, torch.Tensor]] = []
        budget = self._prefill_chunk
        while budget:
            seq = self._prefilling or self._admit(len(ready))
            if seq is None:
                break
            assert seq.prefill is not None
            n = min(budget, len(seq.ids) - seq.num_kv)
            logits = self._forward.prefill(self.weights.prepared, seq.ids[seq.num_kv : seq.num_kv + n], seq.num_kv, seq.prefill)
            seq.num_kv += n
            budget -= n
            self.counters["prefilled"] += n
            self.memory.seal(seq, self.version)
            is_complete = seq.num_kv == len(seq.ids)
            self._prefilling = None if is_complete else seq
            if is_complete:
                ready.append((seq, logits))
        return ready

    def _admit(self, num_ready: int) -> Sequence | None:
        """Take the oldest waiting sequence if a row and pages are there."""
        assert self.memory is not None
        num_running = len(self._decoding) + num_ready
        if not self._waiting or num_running >= self._max_batch:
            return None
        seq = self._waiting[0]
        # A page to spare for each running sequence, lest the newcomer be retracted at once.
        if not self.memory.begin_prefill(seq, self.version, num_spare=num_running):
            assert num_running or self.memory.pages.is_lending, "a sequence alone must fit"
            self.is_starved = not num_running
            return None
        self._waiting.pop(0)
        seq.stage = Stage.prefilling
        self.counters["cached"] += seq.num_kv
        if not seq.num_output and not seq.num_retractions:
            seq.num_cached = seq.num_kv
        return seq

    def _decode(self) -> torch.Tensor:
        """One token of every row: logits [B, V]."""
        assert self.memory is not None and self.weights.prepared is not None
        ids = [seq.ids[-1] for seq in self._decoding]
        logits = self._forward.decode(self.weights.prepared, ids, [seq.num_kv for seq in self._decoding], self.memory.rows)
        page_size = self.memory.page_size
        for seq in self._decoding:
            seq.num_kv += 1
            if seq.num_kv % page_size == 0:
                self.memory.seal(seq, self.version)
        self.counters["decode_steps"] += 1
        return logits

    def _take_tokens(self, stepped: list[Sequence], tokens: list[int], logprobs: list[float]) -> list[Piece]:
        version, now, pieces = str(self.version), self._now(), []
        self.counters["sampled"] += len(tokens)
        self.trace = hash((self.trace, *tokens))
        for seq, token, logprob in zip(stepped, tokens, logprobs, strict=True):
            seq.append(token, logprob, version)
            finish = seq.stopping.after(token, seq.num_output)
            if finish is not None:
                pieces.append(self._end(seq, finish))
            elif seq.request.stream and seq.is_due(now, self._stream_tokens, self._stream_s):
                seq.sent_at_s = now
                pieces.append(seq.piece(None))
        return pieces

    def _start_decoding(self, seq: Sequence) -> None:
        assert self.memory is not None
        self.memory.install(seq)
        seq.stage = Stage.decoding
        assert seq.row == len(self._decoding)
        self._decoding.append(seq)

    def _leave(self, seq: Sequence) -> None:
        """Give back everything the sequence holds."""
        assert self.memory is not None
        if seq.stage is Stage.waiting:
            self._waiting.remove(seq)
        elif seq is self._prefilling:
            self._prefilling = None
        row = seq.row
        self.memory.release(seq)
        if row >= 0:
            last = self._decoding.pop()
            if last is not seq:
                self._decoding[row], last.row = last, row

    def _retract(self, seq: Sequence) -> None:
        self._leave(seq)
        seq.stage = Stage.waiting
        seq.num_retractions += 1
        self.counters["retracted"] += 1
        bisect.insort(self._waiting, seq, key=_by_age)

    def _end(self, seq: Sequence, finish: dict[str, object]) -> Piece:
        self._leave(seq)
        seq.stage = Stage.over
        del self._live[seq.number]
        return seq.piece(finish)

    def _measure(self, num_running: int, seconds: float) -> None:
        before = self.step_s.get(num_running, seconds)
        self.step_s[num_running] = before + 0.1 * (seconds - before)


def _by_age(seq: Sequence) -> int:
    return seq.number
