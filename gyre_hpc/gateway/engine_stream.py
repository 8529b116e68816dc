"""SGLang's event stream -> Tokens. Takes streams that repeat everything (SGLang) and ones that carry only news (ours). Pure."""

from typing import Any

import numpy as np
import orjson

from gyre_hpc.machines.call.actions import EngineAttempt, Tokens
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids


class EngineStream:
    """Feed it bytes as they arrive; it hands out what is new and remembers how the answer ended."""

    def __init__(self, attempt: EngineAttempt) -> None:
        self.finish: dict[str, Any] | None = None
        """SGLang's finish_reason, once it came."""
        self.error = ""
        """What the engine said instead of an answer."""
        self._attempt = attempt
        self._seen = 0
        """Output tokens of this attempt handed out."""
        self._buffer = b""

    def feed(self, data: bytes) -> list[Tokens]:
        """New tokens in these bytes, oldest first; consecutive events are joined where nothing but tokens differs."""
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        news: list[Tokens] = []
        for event in events:
            if event.startswith(b"data: {"):
                tokens = self._event(orjson.loads(event[6:]))
                if tokens is not None:
                    news.append(tokens)
        return _joined(news)

    def _event(self, event: dict[str, Any]) -> Tokens | None:
        if "error" in event:
            self.error = str(event["error"].get("message", event["error"]))
            return None
        meta = event["meta_info"]
        self.finish = meta["finish_reason"] or self.finish
        first = event.get("output_start", 0)
        skip = self._seen - first
        ids, logprobs = event["output_ids"], meta["output_token_logprobs"]
        if skip >= len(ids):
            return None
        start, self._seen = self._seen if skip >= 0 else first, first + len(ids)
        skip = max(skip, 0)
        spans = self._spans(meta, start)
        position = self._attempt.position
        return Tokens(
            start=position + start,
            ids=pack_ids(ids[skip:]),
            logprobs=pack_floats([entry[0] for entry in logprobs[skip:]]),
            spans=spans,
            oldest_kv=self._version(meta.get("oldest_kv_version"), min(span.version for span in spans)),
            cached=meta.get("cached_tokens", 0),
        )

    def _spans(self, meta: dict[str, Any], start: int) -> tuple[VersionSpan, ...]:
        """Over the call's output index, from `start` of this attempt to what was seen."""
        position, default = self._attempt.position, self._version(meta.get("weight_version"), self._attempt.version)
        spans = [
            VersionSpan(
                self._version(span["version"], default), position + max(span["start"], start), position + min(span["end"], self._seen)
            )
            for span in meta.get("weight_versions") or ()
            if span["end"] > start and span["start"] < self._seen
        ]
        return tuple(spans) or (VersionSpan(default, position + start, position + self._seen),)

    @staticmethod
    def _version(text: str | None, default: Version) -> Version:
        try:
            return Version.parse(text) if text else default
        except ValueError:  # an engine with version labels of its own
            return default


def _joined(news: list[Tokens]) -> list[Tokens]:
    """Fewer, larger items: one per run of equal oldest_kv."""
    joined: list[Tokens] = []
    for tokens in news:
        last = joined[-1] if joined else None
        if last is None or last.oldest_kv != tokens.oldest_kv or last.start + len(last.ids) // 4 != tokens.start:
            joined.append(tokens)
            continue
        joined[-1] = Tokens(
            start=last.start,
            ids=last.ids + tokens.ids,
            logprobs=last.logprobs + tokens.logprobs,
            spans=last.spans + tokens.spans,
            oldest_kv=last.oldest_kv,
            cached=last.cached,
        )
    return joined


def generate_body(key: str, attempt: EngineAttempt) -> bytes:
    """JSON body of POST /generate. top_k 0 means off here and -1 there."""
    sampling = attempt.sampling
    return orjson.dumps(
        {
            "rid": key,
            "input_ids": np.frombuffer(b"".join(attempt.prompt), dtype="<i4"),
            "sampling_params": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k or -1,
                "max_new_tokens": attempt.max_new_tokens,
                "stop_token_ids": attempt.stop_ids,
                "custom_params": {"key": sampling.key, "position": attempt.position},
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "stream": True,
            "incremental": True,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
