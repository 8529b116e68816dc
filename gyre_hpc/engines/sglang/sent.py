"""One call of ours as it stands at SGLang: what has come, what the next request there asks, what a chunk of it means to us.

Invariants: tokens are taken once and in order, whatever chunks repeat; how the answer ends is decided by our Stopping alone, with
the first token after which it says so; every token is labelled with the version served while its request ran.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from gyre_hpc.engines.answer import Piece, aborted
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.ids_digest import IdsDigest
from gyre_hpc.engines.sglang.parts import Chunk, ServerLost
from gyre_hpc.engines.stopping import Decode, Stopping
from gyre_hpc.protocol.identity import Version


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """Of the tokens of one upstream request."""

    version: Version
    oldest: Version
    """Of all KV in the server's cache: what a request finds there may be so old."""


class Sent:
    def __init__(self, call: LiveCall, decode: Decode | None) -> None:
        request = call.request
        self.call = call
        self.ids: list[int] = []
        """Output so far."""
        self.finish: dict[str, Any] | None = None
        """Ours, told to the client."""
        self.reason = ""
        """Why it is to end without having finished; empty: it is not."""
        self.moved_to = ""
        self.attempt = 0
        """Upstream requests begun."""
        self.num_retractions = 0
        """By us and by SGLang."""
        self.news = asyncio.Event()
        """Something happened that the call's task may act on."""
        self.known = asyncio.Event()
        """The server knows the request that runs now."""
        self.upstream_finish: dict[str, Any] | None = None
        """How that request ended."""
        self._stopping, self._digest = Stopping(request, decode), IdsDigest(request.input_ids)
        self._cached: int | None = None
        self._base = self._retracted = 0
        self._oldest = Version()

    def at_once(self) -> Piece | None:
        """The whole answer, when there is nothing left to say."""
        self.finish = self._stopping.at_once()
        return None if self.finish is None else self._piece([], [], ())

    def begin(self, rid: str, *, seeded: bool) -> dict[str, Any]:
        """The next upstream request: the prompt, with what has come since, and what is missing."""
        request = self.call.request
        self.attempt += 1
        self._base, self._retracted, self.upstream_finish = len(self.ids), 0, None
        self.known.clear()
        params: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": request.top_k or -1,
            "max_new_tokens": request.max_new_tokens - len(self.ids),
            "ignore_eos": not request.stop_ids,
        }
        if request.stop_ids:
            params["stop_token_ids"] = sorted(request.stop_ids)
        if seeded:
            params["sampling_seed"] = seed(request.key)
        return {
            "rid": rid,
            "input_ids": [*request.input_ids, *self.ids],
            "sampling_params": params,
            # From -1 on: asking for the prompt's own log-probs would switch off prefix reuse.
            "return_logprob": True,
            "logprob_start_len": -1,
            "stream": True,
        }

    def take(self, chunk: Chunk, label: Label) -> Piece | None:
        """What is new in a chunk. Raises ServerLost when it is not what its request can say."""
        if chunk.finish is not None:
            self.upstream_finish = chunk.finish
        if chunk.num_retractions > self._retracted:
            self.num_retractions += chunk.num_retractions - self._retracted
            self._retracted = chunk.num_retractions
        if not chunk.ids or self.finish is not None:
            return None
        if chunk.version != str(label.version):
            raise ServerLost(f"a token of version {chunk.version!r} while {label.version} is served")
        if not self.has_grown:
            self._found(chunk, label)
        start, seen = self._base + chunk.start, len(self.ids)
        if start > seen:
            # Tokens of a request that was retracted for want of memory, and aborted before they were sent: they are drawn anew.
            if (chunk.finish or {}).get("type") == "abort":
                return None
            raise ServerLost(f"tokens {seen} to {start} of an answer are missing")
        if list(chunk.ids[: seen - start]) != self.ids[start : start + len(chunk.ids)]:
            raise ServerLost(f"token {start} of an answer came twice, and differs")
        return self._append(list(chunk.ids[seen - start :]), list(chunk.logprobs[seen - start :]), label)

    def abort(self) -> Piece:
        """The last piece of a call that ends before it has finished."""
        self.finish = aborted(self.reason, self.moved_to)
        return self._piece([], [], ())

    @property
    def has_grown(self) -> bool:
        """Whether the request that ran last brought a token."""
        return len(self.ids) > self._base

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return len(self.call.request.input_ids) + len(self.ids)

    def _append(self, ids: list[int], logprobs: list[float], label: Label) -> Piece | None:
        seen = len(self.ids)
        for place, token in enumerate(ids, start=1):
            self.finish = self._stopping.after(token, seen + place)
            if self.finish is not None:
                # SGLang knows nothing of stop strings, and is some tokens ahead.
                ids, logprobs = ids[:place], logprobs[:place]
                break
        if not ids:
            return None
        self.ids += ids
        self._digest.update(ids)
        return self._piece(ids, logprobs, ((str(label.version), seen, seen + len(ids)),))

    def _found(self, chunk: Chunk, label: Label) -> None:
        """What the request took from the prefix cache."""
        if self._cached is None:
            self._cached = chunk.cached
        # A first chunk that is also the last one may be of a request that stood in a queue: it does not tell.
        self._oldest = label.oldest if chunk.cached or chunk.finish is not None else label.version

    def _piece(self, ids: list[int], logprobs: list[float], spans: tuple[tuple[str, int, int], ...]) -> Piece:
        return Piece(
            number=self.call.number,
            start=len(self.ids) - len(ids),
            ids=ids,
            logprobs=logprobs,
            spans=spans,
            oldest_kv=str(self._oldest),
            cached=self._cached or 0,
            num_retractions=self.num_retractions,
            finish=self.finish,
            digest=self._digest.hexdigest() if self.finish is not None else "",
        )


def seed(key: bytes) -> int:
    """63 bits of a call's key. With deterministic inference SGLang draws by (seed, place among prompt and output): a call that goes
    on elsewhere draws what it would have drawn."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 1
