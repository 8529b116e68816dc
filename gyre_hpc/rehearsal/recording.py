"""What a harness sent in its scenarios and what it was answered: one file per harness and version, gzipped JSON lines.

First line: what was recorded. Then a line per scenario:
    requests   in order of arrival: path, headers that tell calls apart, body (redacted)
    events     ["begin", request], ["end", request] and ["restart"], as they came: what was open at the same time
    answers    output ids of each call, in the order in which calls began
    calls      what became of them: role, branch, parent, finish
Values that come again and again (tools, turns of a history) are written once: {"$": n} stands for the n-th of `pool`.
"""

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gyre_hpc.errors import UserError
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Record
from gyre_hpc.protocol.tensors import unpack_ids
from gyre_hpc.rehearsal.redaction import Redaction
from gyre_hpc.rehearsal.wiretap import Request

FORMAT = 1
_HEADERS = ("x-", "anthropic-", "session-id", "thread-id", "originator", "user-agent", "content-type", "accept")
_NEVER = ("x-api-key", "x-stainless", "x-gyre")
_POOLED = 200
"""Bytes of JSON from which a value is written once."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One recorded scenario."""

    scenario: str
    execution: str
    requests: list[dict[str, Any]]
    events: list[list[Any]]
    answers: list[list[int]]
    calls: list[dict[str, Any]]


@dataclass(kw_only=True)
class Recording:
    """One harness and version."""

    harness: str
    version: str
    tokenizer: str
    """Digest of the tokenizer.json that the ids belong to."""
    scenes: list[Scene] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """<harness>-<version>.jsonl.gz, the same bytes for the same content."""
        lines = [{"format": FORMAT, "harness": self.harness, "version": self.version, "tokenizer": self.tokenizer}]
        for scene in self.scenes:
            pool = _Pool()
            packed = {name: pool.pack(value) for name, value in vars(scene).items()}
            lines.append(packed | {"pool": pool.values})
        path = folder / f"{self.harness}-{self.version}.jsonl.gz"
        path.write_bytes(gzip.compress(b"\n".join(map(orjson.dumps, lines)) + b"\n", mtime=0))
        return path


def read_recording(path: Path) -> Recording:
    """Raises UserError for a file of another format."""
    head, *lines = map(orjson.loads, gzip.decompress(path.read_bytes()).splitlines())
    if head.get("format") != FORMAT:
        raise UserError("recording", str(path), f"has format {head.get('format')}, not {FORMAT}; record it anew")
    recording = Recording(harness=head["harness"], version=head["version"], tokenizer=head["tokenizer"])
    for line in lines:
        pool: list[Any] = []
        for value in line.pop("pool"):
            pool.append(_unpack(value, pool))
        recording.scenes.append(Scene(**{name: _unpack(value, pool) for name, value in line.items()}))
    return recording


def scene_of(
    scenario: str, execution: str, requests: Sequence[Request], events: list[list[Any]], records: Sequence[Record], redaction: Redaction
) -> Scene:
    """What one scenario left -> what is kept of it."""
    begins = [record for record in records if isinstance(record, CallBegin)]
    order = {begin.call: place for place, begin in enumerate(begins)}
    outputs: dict[str, list[int]] = {begin.call: [] for begin in begins}
    finish = {record.call: record.finish for record in records if isinstance(record, CallEnd)}
    for record in records:
        if isinstance(record, CallProgress):
            outputs[record.call] += unpack_ids(record.output_ids).tolist()
    return Scene(
        scenario=scenario,
        execution=execution,
        requests=[_request(request, redaction) for request in requests],
        events=events,
        answers=[outputs[begin.call] for begin in begins],
        calls=[
            {
                "role": begin.role,
                "branch": begin.branch,
                "parent": order[begin.parent] if begin.parent is not None else None,
                "finish": finish.get(begin.call, ""),
            }
            for begin in begins
        ],
    )


def tokenizer_digest(folder: Path) -> str:
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()[:16]


def _request(request: Request, redaction: Redaction) -> dict[str, Any]:
    headers = {name: value for name, value in request.headers.items() if name.startswith(_HEADERS) and not name.startswith(_NEVER)}
    body = redaction.body(orjson.loads(request.body)) if request.body else None
    return {
        "path": request.path,
        "query": request.query,
        "method": request.method,
        "headers": headers,
        "body": body,
        "status": request.status,
    }


class _Pool:
    """Hoists large values, inner ones first."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[bytes, int] = {}

    def pack(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self._hoisted({name: self.pack(inner) for name, inner in value.items()})
        if isinstance(value, list) and not (value and isinstance(value[0], int)):
            return self._hoisted([self.pack(inner) for inner in value])
        return value

    def _hoisted(self, packed: Any) -> Any:
        text = orjson.dumps(packed)
        if len(text) < _POOLED:
            return packed
        if text not in self._known:
            self._known[text] = len(self.values)
            self.values.append(packed)
        return {"$": self._known[text]}


def _unpack(value: Any, pool: Sequence[Any]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"$"}:
            return pool[value["$"]]
        return {name: _unpack(inner, pool) for name, inner in value.items()}
    if isinstance(value, list):
        return [_unpack(inner, pool) for inner in value]
    return value
