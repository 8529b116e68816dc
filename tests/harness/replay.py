"""A recording goes to a real gateway again. What was open at the same time is open at the same time; nothing depends on time."""

import asyncio
import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.scripted import ScriptedEngine
from gyre_hpc.gateway.protocols.responses_ids import Handles
from gyre_hpc.protocol.journal import CallProgress, Record
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.rehearsal.company import Rehearsal, config_of
from gyre_hpc.rehearsal.dialects import dialect_of
from gyre_hpc.rehearsal.recording import Scene
from gyre_hpc.rehearsal.stage import Stage

TOKEN = "replayed"
MAX_CONTEXT = 60_000
PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
_HANDLE = re.compile(r"gyre1\.((?:train|eval|warm)-[0-9r-]+)_(\d+)\.[0-9a-f]+")
_ALL = 1 << 30


class RecordedEngine(ScriptedEngine):
    """Gives the recorded outputs, in the order in which calls begin, and keeps every id that it saw and gave."""

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        super().__init__(lambda prompt, key: self._answers[self._calls.index(self._now)], run_token=TOKEN, host="127.0.0.1", held=True)
        self._answers, self._calls, self._now = answers, list[str](), ""
        self.prompts: dict[str, list[int]] = {}
        self.outputs: dict[str, list[int]] = {}
        self.digests: dict[str, str] = {}
        self.submitted: asyncio.Queue[str] = asyncio.Queue()
        """rids."""

    def submit(self, call: LiveCall) -> None:
        request = call.request
        self._now = call_of(request.rid)
        if self._now not in self.prompts:
            self._calls.append(self._now)
            self.prompts[self._now], self.outputs[self._now] = list(request.input_ids), []
        prompt, given = self.prompts[self._now], list(request.input_ids[len(request.input_ids) - request.position :])
        assert list(request.input_ids) == prompt + given, f"{self._now} goes on in another context"
        assert given == self.outputs[self._now][: request.position], f"{self._now} goes on from tokens that were never given"
        super().submit(call)
        self.submitted.put_nowait(request.rid)

    def _piece(self, part: Any, ids: list[int], finish: Any) -> Piece:
        request = part.call.request
        name = call_of(request.rid)
        del self.outputs[name][request.position + len(part.call.answer.ids) :]
        self.outputs[name] += ids
        piece = super()._piece(part, ids, finish)
        if finish is not None and finish["type"] != "abort":
            self.digests[name] = piece.digest
        return piece


def call_of(rid: str) -> str:
    """Call of `attempt/<execution>/<ordinal>/<n>`."""
    return rid.removeprefix("attempt/").rpartition("/")[0]


@dataclass
class TheCell:
    """The one row of the table."""

    url: str
    name: str = "cell-0"
    term: int = 1
    version: str = "0.0"
    is_serving: bool = True


@dataclass
class Replayed:
    """What came of it."""

    engine: RecordedEngine
    records: tuple[Record, ...]
    statuses: dict[int, int] = field(default_factory=dict)


Change = Callable[[list[dict[str, Any]]], None]
"""Edits the requests before they are sent."""


def replay(scene: Scene, harness: str, folder: Path, change: Change = lambda requests: None) -> Replayed:
    """Send everything again."""
    requests = copy.deepcopy(scene.requests)
    change(requests)
    return asyncio.run(_Replay(scene, requests, harness, folder).run())


class _Replay:
    def __init__(self, scene: Scene, requests: list[dict[str, Any]], harness: str, folder: Path) -> None:
        config = config_of(Rehearsal(harness=harness, folder=folder), dialect_of(harness))
        config.model.max_context = MAX_CONTEXT
        config.harness.max_output_tokens = 10_000
        config.journal.fsync = False
        config.gateway.keepalive_s = 15.0
        self._scene, self._requests = scene, requests
        self._config, self._folder, self._handles = config, folder, Handles(TOKEN)
        self._tasks: dict[int, asyncio.Task[int]] = {}
        self._rids: dict[int, str] = {}

    async def run(self) -> Replayed:
        self._engine = engine = RecordedEngine(self._scene.answers)
        self._stage = Stage(self._folder, self._config, TOKEN, [TheCell(await engine.start())])  # type: ignore[list-item]
        engine.open_admission(1)
        await self._stage.start()
        statuses = {}
        async with aiohttp.ClientSession() as self._http:
            for kind, *number in self._scene.events:
                if not number or self._requests[number[0]]["path"] not in PATHS:
                    continue
                if kind == "begin":
                    await self._begin(number[0])
                else:
                    statuses[number[0]] = await self._end(number[0])
        await self._stage.close()
        records = self._stage.records()
        await engine.close()
        return Replayed(engine, records, statuses)

    async def _begin(self, number: int) -> None:
        self._tasks[number] = asyncio.create_task(self._post(self._requests[number]))
        submitted = asyncio.create_task(self._engine.submitted.get())
        await asyncio.wait([self._tasks[number], submitted], return_when=asyncio.FIRST_COMPLETED)
        if submitted.done():
            self._rids[number] = submitted.result()
        else:
            submitted.cancel()

    async def _end(self, number: int) -> int:
        """Let the answer of its call come out; where it broke off, the shard goes and comes back."""
        rid = self._rids.get(number, "")
        if self._requests[number]["status"]:
            if rid:
                self._engine.release(_ALL, rid)
            return await self._tasks[number]
        self._engine.release(len(self._scene.answers[0]) and 40, rid)
        while not any(isinstance(record, CallProgress) and record.call == call_of(rid) for record in self._stage.records()):
            await asyncio.sleep(0.01)
        await self._stage.stop_gateway()
        await asyncio.gather(self._tasks[number], return_exceptions=True)
        await self._stage.start()
        return 0

    async def _post(self, request: dict[str, Any]) -> int:
        execution = self._scene.execution
        body = orjson.dumps(_overfull(request["body"]) if request["status"] == 400 else request["body"]).decode()
        body = _HANDLE.sub(lambda match: self._handles.mint(f"{match[1]}/{match[2]}"), body)
        key = execution_token(TOKEN, execution)
        headers = {**request["headers"], "authorization": f"Bearer {key}"}
        url = f"{self._stage.url}/e/{execution}{request['path']}"
        async with self._http.post(url, params=request["query"], data=body.encode(), headers=headers) as response:
            await response.read()
            return response.status


def _overfull(body: dict[str, Any]) -> dict[str, Any]:
    """Placeholders are shorter than what they stand for: what did not fit must not fit again."""
    words = "too much " * MAX_CONTEXT
    if "input" in body:
        return body | {"input": [*body["input"], {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}]}
    return body | {"messages": [*body["messages"], {"role": "user", "content": words}]}
