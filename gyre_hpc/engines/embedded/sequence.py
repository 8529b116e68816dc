"""One call inside the core.

waiting ─pages found─▶ prefilling ─whole context computed─▶ decoding ─stop, length, abort─▶ over
   ▲                        │                                  │
   └──────── retracted: out of pages, new weights, pause ──────┘
"""

import enum
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.engines.answer import Piece, Span
from gyre_hpc.engines.ids_digest import IdsDigest
from gyre_hpc.engines.page_table import ROOT
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.stopping import Stopping
from gyre_hpc.models.kv_rows import KVSpan
from gyre_hpc.protocol.identity import Version


class Stage(enum.Enum):
    waiting = "waiting"
    prefilling = "prefilling"
    decoding = "decoding"
    over = "over"


@dataclass(kw_only=True, slots=True, eq=False)
class Sequence:
    """Mutable; only the compute thread touches it."""

    number: int
    """Order of arrival, too: the highest is the youngest."""
    request: Request
    ids: list[int]
    """Prompt and output: what is prefilled, decoded, keyed and hashed."""
    stopping: Stopping
    prescribed: list[int] | None = None
    """Output ids that a script wants; None: they are drawn."""
    stage: Stage = Stage.waiting
    logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    num_kv: int = 0
    """Leading tokens whose KV is computed. While decoding: all but the last."""
    pages: list[int] = field(default_factory=list)
    """Pages held, for tokens [0, len(pages) * page_size)."""
    num_sealed: int = 0
    """Leading pages that are full, written and keyed."""
    chain_key: bytes = ROOT
    """Key of the last sealed page."""
    oldest_kv: Version = field(default_factory=Version)
    prefill: KVSpan | None = None
    """KV being computed, while prefilling."""
    row: int = -1
    """Row of KVRows, while decoding."""
    num_cached: int = 0
    """Prompt tokens that the first prefill found in the cache."""
    num_retractions: int = 0
    num_sent: int = 0
    """Output tokens handed to the surface."""
    sent_at_s: float = 0.0
    digest: IdsDigest = field(default_factory=IdsDigest)
    """Of leading `ids`, as far as pieces went."""

    @property
    def num_prompt(self) -> int:
        return len(self.request.input_ids)

    @property
    def num_output(self) -> int:
        return len(self.logprobs)

    def append(self, token: int, logprob: float, version: str) -> None:
        """Take a sampled token."""
        position = len(self.logprobs)
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.spans and self.spans[-1][0] == version:
            self.spans[-1] = (version, self.spans[-1][1], position + 1)
        else:
            self.spans.append((version, position, position + 1))

    def is_due(self, now: float, stream_tokens: int, stream_s: float) -> bool:
        """Whether a chunk goes out. Cumulative ones grow by an eighth at least: their bytes together stay linear in the answer."""
        least = stream_tokens if self.request.incremental else max(stream_tokens, self.num_sent // 8)
        if self.num_output - self.num_sent >= least:
            return True
        return self.request.incremental and now - self.sent_at_s >= stream_s

    def piece(self, finish: dict[str, Any] | None) -> Piece:
        """What was sampled since the last piece."""
        start, self.num_sent = self.num_sent, len(self.logprobs)
        self.digest.update(self.ids[self.digest.num_ids :])
        return Piece(
            number=self.number,
            start=start,
            ids=self.ids[self.num_prompt + start :],
            logprobs=self.logprobs[start:],
            spans=tuple((version, max(first, start), end) for version, first, end in self.spans if end > start),
            oldest_kv=str(self.oldest_kv),
            cached=self.num_cached,
            num_retractions=self.num_retractions,
            finish=finish,
            digest=self.digest.hexdigest() if finish is not None else "",
        )
