"""Prompts for the other cell of a pair, served by the one that prefills (prompt_wire.py).

Invariants: whoever hangs up, by intent or by its death, ends its prompt; an answer says in beats that it is still being worked on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from gyre_hpc.cell.kv_wire import BadBody
from gyre_hpc.cell.prompt_wire import BEAT, BEAT_S, Computed, Found, read_prompt
from gyre_hpc.engines.sglang.parts import Bootstrap, Refused
from gyre_hpc.errors import GyreError


class Prompts:
    """compute: SGLangEngine.prompt. where: of the bootstrap server."""

    def __init__(self, compute: Callable[[Mapping[str, Any], str], Awaitable[str]], where: Bootstrap, beat_s: float = BEAT_S) -> None:
        self._compute, self._where, self._beat_s = compute, where, beat_s

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/pd/where", self._tell_where)
        app.router.add_post("/pd/prompt", self._prompt)

    async def _tell_where(self, request: web.Request) -> web.Response:
        return _whole(Found(self._where.host, self._where.port))

    async def _prompt(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = read_prompt(await request.read())
        except BadBody as error:
            return web.Response(status=400, text=str(error))
        work = asyncio.ensure_future(self._computed(asked.body, asked.version))
        try:
            await asyncio.wait((work,), timeout=self._beat_s)
            if work.done():
                return _whole(work.result())
            response = web.StreamResponse()
            response.content_type = "application/msgpack"
            await response.prepare(request)
            while not work.done():
                await response.write(BEAT)
                await asyncio.wait((work,), timeout=self._beat_s)
            await response.write(msgspec.msgpack.encode(work.result()))
            await response.write_eof()
            return response
        finally:
            # The handler is cancelled, or a beat finds nobody.
            work.cancel()
            await asyncio.wait((work,))

    async def _computed(self, body: Mapping[str, Any], version: str) -> Computed:
        try:
            return Computed(label=await self._compute(body, version))
        except GyreError as error:
            return Computed(reason=str(error) or type(error).__name__, is_refused=isinstance(error, Refused))


def _whole(body: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.msgpack.encode(body), content_type="application/msgpack")
