"""A process that stands for a cell: an engine of either kind, whose calls say what the script prescribes.

Beside the engine's own HTTP surface, on another port and for the director alone (run token, like everything here):
    POST /rehearsal/serve   {"term", "version"}   wake with a version, take calls
    POST /rehearsal/leave   {"term"}              close admission, end all calls with the tokens they have, sleep
    POST /rehearsal/update  {"version"}           other weights under live calls
    POST /rehearsal/go_on                         after a moment: compute on
    GET  /rehearsal/moments                       one JSON line per moment: computing stands still until it is answered
    GET  /rehearsal/seen                          every answer to the end: digest of the ids, by attempt
A moment is an answer, half of it out, whose script says that something happens now. Announced once per call.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import ChatFormat
from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.backend import PauseMode
from gyre_hpc.engines.calls import CallBook, LiveCall
from gyre_hpc.engines.scripted import ScriptedAnswer
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.ports import listen
from gyre_hpc.protocol.identity import Version
from gyre_hpc.rehearsal.dialects import Dialect, dialect_of
from gyre_hpc.rehearsal.script import next_turn
from gyre_hpc.rehearsal.spelling import Spelling
from gyre_hpc.shell.inbox import make_app
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.timers import Timers

TOKEN = "GYRE_REHEARSAL_TOKEN"
"""Environment variable: the run token; never on a command line."""
TICK_S = 0.01
_MAX_BODY = 1 << 20
_TICK = "tick"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What a cell process is told."""

    harness: str
    tokenizer: str
    template: str
    interface: str
    max_context: int
    run_token: str


Build = Callable[[Part, ChatFormat, ScriptedAnswer], ServedEngine]


class Script:
    """The script as an engine takes it."""

    def __init__(self, chat_format: ChatFormat, dialect: Dialect, max_context: int) -> None:
        self._format, self._dialect, self._max_context = chat_format, dialect, max_context
        self._spelling = Spelling(chat_format)

    def answer(self, prompt: tuple[int, ...], key: bytes) -> Sequence[int]:
        turn = next_turn(self._format.tokenizer.decode(prompt), self._dialect)
        return self._spelling.ids(turn, longest=max(1, self._max_context - len(prompt)))

    def half_way(self, prompt: Sequence[int]) -> tuple[str, int] | None:
        """(moment, output tokens after which it happens) of the answer to `prompt`."""
        turn = next_turn(self._format.tokenizer.decode(prompt), self._dialect)
        if turn.say.moment is None:
            return None
        num_tokens = len(self._spelling.ids(turn, longest=1))
        return turn.say.moment.value, max(1, int(num_tokens * turn.say.moment_after))


class KeptBook(CallBook):
    """Remembers how every answer ended: the engine's own hash of what it saw and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Any]] = []

    def deliver(self, pieces: list[Piece]) -> None:
        rids = {call.number: (call.request.rid, call.request.position) for call in self.live()}
        super().deliver(pieces)
        for piece in pieces:
            if piece.finish is not None and piece.number in rids:
                rid, position = rids[piece.number]
                num_output = position + piece.start + len(piece.ids)
                self.seen.append({"rid": rid, "num_output": num_output, "finish": piece.finish["type"], "digest": piece.digest})


class RehearsedCell:
    """One engine with its director's surface. `advance` lets a held engine go on for one tick."""

    def __init__(self, engine: ServedEngine, script: Script, advance: Callable[[], None]) -> None:
        self._engine, self._script, self._advance = engine, script, advance
        self._book = engine.book = KeptBook()
        self._half_way: dict[int, tuple[str, int] | None] = {}
        self._told: set[str] = set()
        self._stands = False
        self._news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._timers = Timers(lambda key: self._tick())

    def add_to(self, app: web.Application) -> None:
        for name in ("serve", "leave", "update", "go_on"):
            app.router.add_post(f"/rehearsal/{name}", getattr(self, f"_{name}"))
        app.router.add_get("/rehearsal/moments", self._moments)
        app.router.add_get("/rehearsal/seen", self._seen)

    def start(self) -> None:
        self._timers.set(_TICK, TICK_S)

    def close(self) -> None:
        self._timers.close()

    def _tick(self) -> None:
        self._timers.set(_TICK, TICK_S)
        if self._stands:
            return
        self._advance()
        for call in self._engine.book.live():
            if self._is_half_way(call):
                self._stands = True
                self._task = asyncio.get_running_loop().create_task(self._stand_still(call))
                return

    def _is_half_way(self, call: LiveCall) -> bool:
        if call.number not in self._half_way:
            request = call.request
            self._half_way[call.number] = self._script.half_way(request.input_ids[: len(request.input_ids) - request.position])
        moment, request = self._half_way[call.number], call.request
        if moment is None or call.is_over or request.rid.rpartition("/")[0] in self._told:
            return False
        return request.position < moment[1] <= request.position + len(call.answer.ids)

    async def _stand_still(self, call: LiveCall) -> None:
        await self._engine.pause(PauseMode.in_place)
        moment = self._half_way[call.number]
        assert moment is not None
        self._told.add(call.request.rid.rpartition("/")[0])
        await self._news.put({"moment": moment[0], "rid": call.request.rid, "num_output": call.request.position + len(call.answer.ids)})

    async def _moments(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(b"\n")
        while True:
            await response.write(orjson.dumps(await self._news.get()) + b"\n")

    async def _seen(self, request: web.Request) -> web.Response:
        return web.json_response(self._book.seen)

    async def _go_on(self, request: web.Request) -> web.Response:
        await self._engine.resume()
        self._stands = False
        return web.Response()

    async def _serve(self, request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        await self._engine.wake(Version.parse(asked["version"]))
        self._engine.open_admission(asked["term"])
        await self._engine.resume()
        self._stands = False
        return web.Response()

    async def _leave(self, request: web.Request) -> web.Response:
        self._engine.close_admission(orjson.loads(await request.read())["term"])
        num = await self._engine.abort_all({})
        await self._engine.resume()
        self._stands = False
        await self._engine.sleep()
        return web.json_response({"aborted": num})

    async def _update(self, request: web.Request) -> web.Response:
        await self._engine.update_weights(Version.parse(orjson.loads(await request.read())["version"]))
        return web.Response()


async def serve(part: Part, build: Build, advance: Callable[[ServedEngine], None]) -> None:
    """Until the parent goes or a signal comes. The first line on stdout is JSON: where the engine and where the director is served."""
    chat_format = create_chat_format(ModelConfig(tokenizer=part.tokenizer, template=part.template))
    script = Script(chat_format, dialect_of(part.harness), part.max_context)
    engine = build(part, chat_format, script.answer)
    cell = RehearsedCell(engine, script, lambda: advance(engine))
    app = make_app(part.run_token, _MAX_BODY)
    cell.add_to(app)
    over = asyncio.get_running_loop().create_future()
    end_with_parent(lambda reason: None if over.done() else over.set_result(reason))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.SockSite(runner, listen(part.interface, 0)).start()
    urls = {"engine": await engine.start(), "director": f"http://{part.interface}:{runner.addresses[0][1]}"}
    cell.start()
    print(json.dumps(urls), flush=True)
    await over
    cell.close()
    await engine.close()
    await runner.cleanup()


def main(argv: list[str], build: Build, advance: Callable[[ServedEngine], None]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("harness", "tokenizer", "template", "interface"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--max-context", type=int, required=True)
    given = parser.parse_args(argv)
    part = Part(
        harness=given.harness, tokenizer=given.tokenizer, template=given.template, interface=given.interface,
        max_context=given.max_context, run_token=os.environ[TOKEN],
    )  # fmt: skip
    asyncio.run(serve(part, build, advance))
    return 0
