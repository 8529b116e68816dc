"""What engines hand to the HTTP surface, and how it becomes SGLang's JSON. No torch, no clock.

An engine sends `Piece`s: consecutive output tokens of one call, the last of them with a finish reason. `Answer` collects
them. A stream chunk is the whole answer so far (SGLang) or, with `incremental`, what is new since the last chunk.
"""

from dataclasses import dataclass, field
from typing import Any

Span = tuple[str, int, int]
"""(version, start, end): output tokens [start, end) of the request were sampled with `version`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Output tokens [start, start + n) of call `number`; n may be 0 in the last piece."""

    number: int
    start: int
    ids: list[int]
    logprobs: list[float]
    spans: tuple[Span, ...]
    oldest_kv: str
    """Oldest version whose KV these tokens attended to."""
    cached: int
    """Prompt tokens taken from the prefix cache."""
    num_retractions: int
    finish: dict[str, Any] | None = None
    """SGLang's finish_reason; set in the last piece."""
    digest: str = ""
    """ids_digest of prompt and output; set in the last piece."""


def stopped(matched: int | str) -> dict[str, Any]:
    """By a token or a string; either stays in the output."""
    return {"type": "stop", "matched": matched}


def reached_length(length: int) -> dict[str, Any]:
    return {"type": "length", "length": length}


def aborted(message: str, moved_to: str = "") -> dict[str, Any]:
    """moved_to: cell that has the KV of the call now. An extension, absent when empty."""
    finish = {"type": "abort", "message": message, "status_code": None, "err_type": None}
    return {**finish, "moved_to": moved_to} if moved_to else finish


@dataclass(kw_only=True, slots=True)
class Answer:
    """Everything received of one call, and how much of it was shown."""

    rid: str
    num_prompt: int
    return_logprob: bool
    version: str
    """Version served when the call came; later that of the last span."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    oldest_kv: str = ""
    pending_oldest_kv: str = ""
    shown: int = 0
    cached: int = 0
    num_retractions: int = 0
    finish: dict[str, Any] | None = None
    digest: str = ""

    def add(self, piece: Piece) -> None:
        """Take the next piece. Pieces come in order."""
        assert piece.start == len(self.ids) and self.finish is None
        self.ids += piece.ids
        self.logprobs += piece.logprobs
        for span in piece.spans:
            _extend(self.spans, span)
        self.cached, self.num_retractions = piece.cached, piece.num_retractions
        self.finish, self.digest = piece.finish, piece.digest
        if piece.ids:
            self.version = self.spans[-1][0]
            self.oldest_kv = _older(self.oldest_kv, piece.oldest_kv)
            self.pending_oldest_kv = _older(self.pending_oldest_kv, piece.oldest_kv)

    def whole(self, latency_s: float) -> dict[str, Any]:
        """The answer so far."""
        self.shown, self.pending_oldest_kv = len(self.ids), ""
        return self._json(0, self.oldest_kv, latency_s)

    def news(self, latency_s: float) -> dict[str, Any]:
        """What is new since the last `whole` or `news`; `output_start` says from which output token on."""
        start, oldest = self.shown, self.pending_oldest_kv
        self.shown, self.pending_oldest_kv = len(self.ids), ""
        return self._json(start, oldest, latency_s) | {"output_start": start}

    def _json(self, start: int, oldest_kv: str, latency_s: float) -> dict[str, Any]:
        ids = self.ids[start:]
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": self.num_prompt,
            "completion_tokens": len(self.ids),
            "cached_tokens": self.cached,
            "cached_tokens_details": None,
            "weight_version": self.version,
            "weight_versions": [
                {"version": version, "start": max(first, start), "end": end} for version, first, end in self.spans if end > start
            ],
            "oldest_kv_version": oldest_kv or self.version,
            "num_retractions": self.num_retractions,
        }
        if self.finish is not None:
            meta["e2e_latency"] = latency_s
            meta["ids_digest"] = self.digest
        if self.return_logprob:
            meta["input_token_logprobs"] = []
            meta["output_token_logprobs"] = [[lp, token, None] for lp, token in zip(self.logprobs[start:], ids, strict=True)]
            meta["output_token_logprobs_length"] = len(ids)
        return {"text": "", "output_ids": ids, "meta_info": meta}


def _extend(spans: list[Span], span: Span) -> None:
    if spans and spans[-1][0] == span[0] and spans[-1][2] == span[1]:
        spans[-1] = (span[0], spans[-1][1], span[2])
    else:
        spans.append(span)


def _older(one: str, other: str) -> str:
    """The older of two version texts `lineage.step`; an empty one counts as none."""
    if not one or not other:
        return one or other
    return min(one, other, key=lambda text: tuple(map(int, text.split("."))))
