"""SGLang's event stream -> Tokens. Takes streams that repeat everything (SGLang) and ones that carry only news (ours). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from gyre_hpc.gateway.ids_text import IdsText
from gyre_hpc.machines.call.actions import EngineAttempt, Tokens
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids


class EngineStream:
    """Feed it bytes as they arrive; it hands out what is new and remembers how the answer ended."""

    def __init__(self, attempt: EngineAttempt) -> None:
        self.finish: dict[str, Any] | None = None
        """SGLang's finish_reason, once it came."""
        self.digest = ""
        """Its running hash over prompt and output ids (engines/ids_digest.py), if it tells one with the finish reason."""
        self.error = ""
        """What the engine said instead of an answer."""
        self.is_refused = False
        """`error` is about the request itself: another cell would say the same."""
        self._attempt = attempt
        self._seen = 0
        """Output tokens of this attempt taken so far."""
        self._buffer = b""
        self._versions: dict[str, Version] = {}
        self._run = _Run()

    @property
    def moved_to(self) -> str:
        """Cell that has the KV of an aborted call now; empty: none that the engine knows of."""
        return str((self.finish or {}).get("moved_to") or "")

    def feed(self, data: bytes) -> list[Tokens]:
        """New tokens in these bytes, oldest first: one item per run of consecutive tokens with the same oldest KV version."""
        *events, self._buffer = (self._buffer + data).split(b"\n\n")
        news: list[Tokens] = []
        for event in events:
            if event.startswith(b"data: {"):
                self._event(orjson.loads(event[6:]), news)
        self._hand_out(news)
        return news

    def _event(self, event: dict[str, Any], news: list[Tokens]) -> None:
        if "error" in event:
            error = event["error"]
            self.error = str(error.get("message", error) if isinstance(error, dict) else error)
            self.is_refused = isinstance(error, dict) and 400 <= int(error.get("code") or 0) < 500
            return
        meta = event["meta_info"]
        self.finish = meta["finish_reason"] or self.finish
        self.digest = str(meta.get("ids_digest") or self.digest)
        ids = event["output_ids"]
        # Cumulative chunks begin at 0; chunks of news say where they begin, or (SGLang) how many tokens there are with them.
        first = event.get("output_start", meta.get("completion_tokens", len(ids)) - len(ids))
        end = first + len(ids)
        if end <= self._seen:
            return
        # A hole is handed on as it is: the machine decides what it means.
        start = max(first, self._seen)
        oldest = meta.get("oldest_kv_version") or ""
        if self._run.ids and (oldest != self._run.oldest or start != self._seen):
            self._hand_out(news)
        run = self._run
        if not run.ids:
            run.start, run.oldest, run.cached = start, oldest, meta.get("cached_tokens", 0)
        run.ids += ids[start - first :]
        run.logprobs += [entry[0] for entry in meta["output_token_logprobs"][start - first :]]
        run.add_spans(meta.get("weight_versions") or (), meta.get("weight_version") or "", start, end)
        self._seen = end

    def _hand_out(self, news: list[Tokens]) -> None:
        run, self._run = self._run, _Run()
        if not run.ids:
            return
        position = self._attempt.position
        spans = tuple(VersionSpan(self._version(text), position + start, position + end) for text, start, end in run.spans)
        oldest = self._version(run.oldest) if run.oldest else min(span.version for span in spans)
        news.append(Tokens(position + run.start, pack_ids(run.ids), pack_floats(run.logprobs), spans, oldest, run.cached))

    def _version(self, text: str) -> Version:
        """An engine with version labels of its own counts as serving what the table says."""
        if text not in self._versions:
            try:
                self._versions[text] = Version.parse(text)
            except ValueError:
                self._versions[text] = self._attempt.version
        return self._versions[text]


@dataclass(slots=True)
class _Run:
    """Consecutive tokens of one attempt, not handed out yet. Indexes count this attempt's output."""

    start: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    oldest: str = ""
    cached: int = 0

    def add_spans(self, told: Iterable[dict[str, Any]], default: str, start: int, end: int) -> None:
        """Version spans of tokens [start, end); what nothing was told about has the default version."""
        for span in told:
            if span["end"] >= end and span["start"] <= start:
                self._add(span["version"], start, end)
                return
            if span["end"] > start:
                self._add(default, start, min(span["start"], end))
                self._add(span["version"], max(span["start"], start), min(span["end"], end))
                start = max(start, min(span["end"], end))
        if start < end:
            self._add(default, start, end)

    def _add(self, version: str, start: int, end: int) -> None:
        if start >= end:
            return
        if self.spans and self.spans[-1][0] == version and self.spans[-1][2] == start:
            self.spans[-1] = (version, self.spans[-1][1], end)
        else:
            self.spans.append((version, start, end))


def generate_body(key: str, attempt: EngineAttempt, ids_text: IdsText | None = None) -> bytes:
    """JSON body of POST /generate. top_k 0 means off here and -1 there."""
    sampling = attempt.sampling
    rest = orjson.dumps(
        {
            "rid": key,
            "sampling_params": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k or -1,
                "max_new_tokens": attempt.max_new_tokens,
                "stop_token_ids": attempt.stop_ids,
                # The recorded output keeps the stop sequence: the text is cut when it is parsed.
                **({"stop": attempt.stop, "no_stop_trim": True} if attempt.stop else {}),
                "custom_params": {"key": sampling.key, "position": attempt.position, "call": attempt.call},
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "stream": True,
            "incremental": True,
        }
    )
    execution = attempt.call.rpartition("/")[0]
    return (ids_text or IdsText()).list_of(execution, attempt.prompt, b'{"input_ids":', b"," + rest[1:])
