"""Open responses to clients: the machine's words about a connection become bytes on it, in the order they were said."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from aiohttp import web

from gyre_hpc.clock import unix_s
from gyre_hpc.gateway.protocols.base import ChatRequest, Head, Protocol, RequestError, Usage
from gyre_hpc.machines.call.actions import KeepAlive, Refuse, Reply, Say

_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class ClientGone(Exception):
    """Nobody is there to read."""


class Connection:
    """One request whose response is not complete."""

    def __init__(self, id: str, execution: str, request: web.Request, protocol: Protocol, asked: ChatRequest) -> None:
        self.id, self.execution = id, execution
        self.over = asyncio.get_running_loop().create_future()
        """Resolves with the response once everything was written."""
        self._request, self._protocol, self._asked = request, protocol, asked
        self._created = int(unix_s())
        self._stream: web.StreamResponse | None = None
        self._order = asyncio.Lock()

    @property
    def is_closed(self) -> bool:
        """The client is gone, whether or not its handler was told."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def say(self, call: str, text: str) -> None:
        """An empty text keeps the connection alive."""
        async with self._order:
            stream = await self._opened(call)
            await stream.write(self._protocol.text(self._head(call), text))

    async def reply(self, reply: Reply) -> None:
        usage = Usage(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens)
        head = self._head(reply.call)
        async with self._order:
            if not self._asked.stream:
                await self._end(self._whole(self._protocol.whole(head, reply.answer, reply.finish, usage), 200))
                return
            stream = await self._opened(reply.call)
            await stream.write(self._protocol.closing(head, reply.answer, reply.finish, usage if self._asked.with_usage else None))
            await self._end(stream)

    async def refuse(self, error: RequestError) -> None:
        async with self._order:
            if self._stream is None:
                await self._end(self._whole(self._protocol.error(error), error.status))
                return
            await self._stream.write(self._protocol.error_event(error))
            await self._end(self._stream)

    async def _end(self, response: web.StreamResponse) -> None:
        if self.is_closed:
            raise ClientGone(self.id)
        await response.prepare(self._request)
        await response.write_eof()
        if not self.over.done():
            self.over.set_result(response)

    async def _opened(self, call: str) -> web.StreamResponse:
        if self.is_closed:
            raise ClientGone(self.id)
        if self._stream is None:
            self._stream = web.StreamResponse(headers=_SSE)
            await self._stream.prepare(self._request)
            await self._stream.write(self._protocol.opening(self._head(call)))
        return self._stream

    def _head(self, call: str) -> Head:
        return Head(id=f"chatcmpl-{call.replace('/', '-')}", created=self._created, model=self._asked.model)

    @staticmethod
    def _whole(body: bytes, status: int) -> web.Response:
        return web.Response(body=body, status=status, content_type="application/json")


class Connections:
    """All of them by id; its methods are the actions that speak to clients."""

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        self._numbers = itertools.count()

    def add(self, execution: str, request: web.Request, protocol: Protocol, asked: ChatRequest) -> Connection:
        connection = Connection(f"c{next(self._numbers)}", execution, request, protocol, asked)
        self._open[connection.id] = connection
        return connection

    def drop(self, connection: Connection) -> None:
        self._open.pop(connection.id, None)

    def closed(self, execution: str) -> list[Connection]:
        """Connections of this execution whose client is gone already."""
        return [connection for connection in self._open.values() if connection.execution == execution and connection.is_closed]

    async def keep_alive(self, key: str, action: KeepAlive, progress: Callable[[Any], None]) -> None:
        await self._get(action.conn).say(action.call, "")

    async def say(self, key: str, action: Say, progress: Callable[[Any], None]) -> None:
        await self._get(action.conn).say(action.call, action.text)

    async def reply(self, key: str, action: Reply, progress: Callable[[Any], None]) -> None:
        """Returns when everything was handed to the connection; raises when the client is gone."""
        await self._get(action.conn).reply(action)

    async def refuse(self, key: str, action: Refuse, progress: Callable[[Any], None]) -> None:
        error = RequestError(action.text, status=action.status, code=action.code, field=_FIELDS.get(action.code, ""))
        await self._get(action.conn).refuse(error)

    def _get(self, conn: str) -> Connection:
        connection = self._open.get(conn)
        if connection is None:
            raise ClientGone(conn)
        return connection


_FIELDS = {"context_length_exceeded": "messages", "invalid_messages": "messages"}
"""Field an error of the machine is about."""
