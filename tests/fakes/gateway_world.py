"""A real gateway shard (Host, journal files, HTTP) between a client of ours and AnsweringEngines."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from gyre_hpc.chat import create_chat_format
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.gateway.journal_writer import read_journal
from gyre_hpc.gateway.run import Gateway
from gyre_hpc.machines.base import Received
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallEnd, CallProgress, Record
from gyre_hpc.protocol.to_gateway import Row, Table
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.shell.arguments import Birth
from tests.fakes.answering_engine import AnsweringEngine

TOKEN = "secret"
EXECUTION = "train-0-0-0"
FORMAT = create_chat_format("drill", "drill")
STOP = FORMAT.stop_ids[0]
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {"command": {}}}}}]


def spelled(text: str) -> list[int]:
    """`text` byte by byte with an end of turn: decodes to it, but is not what the tokenizer would make of it."""
    return [*text.encode(), STOP]


def called(command: str, content: str = "") -> list[int]:
    """An answer with one tool call."""
    text = f'{content}<tool_call>{{"name":"shell","arguments":{{"command":"{command}"}}}}</tool_call>'
    return [*FORMAT.tokenizer.encode(text), STOP]


class InTurn:
    """Answers by how many different prompts came before; the same prompt gets the same answer."""

    def __init__(self, *answers: list[int]) -> None:
        self._answers, self._known = list(answers), dict[tuple[int, ...], list[int]]()

    def __call__(self, prompt: Sequence[int]) -> list[int]:
        key = tuple(prompt)
        if key not in self._known:
            self._known[key] = self._answers[min(len(self._known), len(self._answers) - 1)]
        return self._known[key]


def small_config(**gateway: Any) -> Config:
    config = Config()
    config.journal.fsync = False
    config.harness.max_output_tokens = 200
    config.model.max_context = 2000
    for name, value in gateway.items():
        setattr(config.gateway, name, value)
    return config


class World:
    """One gateway, its client session and its engines."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = RunFolder(folder), config
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.engines: list[AnsweringEngine] = []
        self.table = 0
        self.gateway: Gateway
        self.url = ""
        self.http = aiohttp.ClientSession()

    async def start(self, incarnation: int = 1) -> None:
        birth = Birth(
            name="gateway-0", attempt=1, incarnation=incarnation, supervisor_url="http://127.0.0.1:1", folder=self.folder, config=self.config,
            run_token=TOKEN,
        )  # fmt: skip
        self.gateway = Gateway(birth, lambda kind, fields: self.notes.append((kind, dict(fields))), os.getpid())
        self.url = await self.gateway.start()

    async def engine(self, answers: Any, **options: Any) -> AnsweringEngine:
        self.engines.append(await AnsweringEngine(answers, run_token=TOKEN, **options).start())
        return self.engines[-1]

    def route(self, *rows: int, ended: tuple[str, ...] = (), term: int = 1) -> None:
        """The table names these engines."""
        self.table += 1
        self.gateway.host.tell(Received("controller", Table(self.table, 5.0, tuple(self._row(place, term) for place in rows), ended=ended)))

    def _row(self, place: int, term: int) -> Row:
        engine = self.engines[place]
        version = Version.parse(engine.version)
        return Row(f"cell-{place}", engine.url, term, version, ("train", "eval"))

    async def ask(self, messages: list[dict[str, Any]], *, execution: str = EXECUTION, thread: str = "main", **more: Any) -> dict[str, Any]:
        """The body of a Chat Completions answer; streamed ones are put together. `status` is added."""
        body = orjson.dumps({"model": "m", "messages": messages} | more)
        headers = {"Authorization": f"Bearer {execution_token(TOKEN, execution)}", "X-Agent-Id": thread}
        async with self.http.post(f"{self.url}/e/{execution}/v1/chat/completions", data=body, headers=headers) as response:
            data = await response.read()
            if response.content_type == "text/event-stream":
                return assembled(data) | {"status": response.status}
            return orjson.loads(data) | {"status": response.status}

    def records(self) -> tuple[Record, ...]:
        return read_journal(self.folder.journal, "gateway-0", 1)

    def ends(self) -> list[CallEnd]:
        return [record for record in self.records() if isinstance(record, CallEnd)]

    def tokens(self) -> dict[str, int]:
        machine: Any = self.gateway.host._machine
        return dict(machine._shard.tokens)

    async def close(self) -> None:
        await self.http.close()
        await self.gateway.close()
        for engine in self.engines:
            await engine.close()


@asynccontextmanager
async def world(folder: Path, config: Config | None = None) -> AsyncIterator[World]:
    here = World(folder, config or small_config())
    await here.start()
    try:
        yield here
    finally:
        await here.close()


def message(answer: dict[str, Any]) -> dict[str, Any]:
    """The assistant message as a harness keeps it."""
    kept = answer["choices"][0]["message"]
    return {key: value for key, value in kept.items() if value is not None}


def events(data: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line[6:]) for line in data.split(b"\n\n") if line.startswith(b"data: {")]


def assembled(data: bytes) -> dict[str, Any]:
    """Events -> what a non-streaming answer would have been."""
    content, calls, finish, usage = "", list[dict[str, Any]](), None, None
    for event in events(data):
        if "error" in event:
            return event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            content += choice["delta"].get("content") or ""
            calls += choice["delta"].get("tool_calls") or []
            finish = choice["finish_reason"] or finish
    assert data.endswith(b"data: [DONE]\n\n")
    kept: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if calls:
        kept["tool_calls"] = [{key: value for key, value in call.items() if key != "index"} for call in calls]
    return {"choices": [{"message": kept, "finish_reason": finish}], "usage": usage}


async def until(true: Any, what: str, within_s: float = 20.0) -> None:
    """Poll until `true()`."""
    for _ in range(int(within_s / 0.01)):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited {within_s} s in vain: {what}")


def output_ids(here: World, call: str = f"{EXECUTION}/0") -> list[int]:
    """All journaled output of a call; asserts that no position is there twice."""
    ids: list[int] = []
    for record in here.records():
        if isinstance(record, CallProgress) and record.call == call:
            assert record.start == len(ids)
            ids += memoryview(record.output_ids).cast("i").tolist()
    return ids
