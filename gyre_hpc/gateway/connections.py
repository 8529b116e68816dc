"""Open responses to clients: the machine's words about a connection become bytes on it, in the order they were said."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from gyre_hpc.clock import unix_s
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, Protocol, RequestError, Stream, TokenLogprob, Usage
from gyre_hpc.machines.call.actions import Confirm, HangUp, KeepAlive, Refuse, Reply, Say

_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_JSON = {"Content-Type": "application/json"}
_RETRY_AFTER = "1"
"""Seconds. Harnesses that would give up at once ask again when they are told when."""
DescribeTokens = Callable[[bytes, bytes], tuple[TokenLogprob, ...]]
"""Packed ids and log-probs -> what a client is told of them."""


class ClientGone(Exception):
    """Nobody is there to read."""


class Connection:
    """One request whose response is not complete."""

    def __init__(
        self, id: str, execution: str, request: web.Request, protocol: Protocol, asked: ChatRequest, tokens: DescribeTokens
    ) -> None:
        self.id, self.execution = id, execution
        self.over = asyncio.get_running_loop().create_future()
        """Resolves with the response once everything was written."""
        self._request, self._protocol, self._asked, self._tokens = request, protocol, asked, tokens
        self._created = int(unix_s())
        self._open: web.StreamResponse | None = None
        """Headers are on the wire."""
        self._stream: Stream | None = None
        self._order = asyncio.Lock()

    @property
    def is_closed(self) -> bool:
        """The client is gone, whether or not its handler was told."""
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def keep_alive(self, call: str) -> None:
        """Streams get an empty event; a body that is not streamed begins with a space, which JSON allows."""
        async with self._speaking():
            if self._asked.stream:
                open, stream = await self._streaming(call)
                await open.write(stream.keep_alive())
            else:
                open = await self._opened(_JSON)
                await open.write(b" ")

    async def say(self, said: Say) -> None:
        async with self._speaking():
            open, stream = await self._streaming(said.call)
            pieces = (stream.reasoning(said.reasoning) if said.reasoning else b"") + (stream.text(said.text) if said.text else b"")
            await open.write(pieces)

    async def reply(self, reply: Reply) -> None:
        async with self._speaking():
            if self._asked.stream:
                open, stream = await self._streaming(reply.call)
                await open.write(stream.closing(self._finished(reply)))
                await self._end(open)
            else:
                await self._end_whole(self._protocol.whole(self._head(reply.call), self._asked, self._finished(reply)), 200)

    async def refuse(self, error: RequestError) -> None:
        async with self._speaking():
            if self._stream is not None and self._open is not None:
                await self._open.write(self._stream.error(error))
                await self._end(self._open)
            elif self._open is not None:
                # Its status line says 200: only a broken connection makes the client ask again.
                self.break_off()
            else:
                await self._end_whole(self._protocol.error(error), error.status)

    async def confirm(self) -> None:
        """What the request wanted is done; it brought the body that says so (ChatRequest.echo)."""
        async with self._speaking():
            await self._end_whole(b"".join(self._asked.echo) or b"{}", 200)

    @asynccontextmanager
    async def _speaking(self) -> AsyncIterator[None]:
        """One speaker at a time. Nobody waits for words that failed to be written."""
        async with self._order:
            try:
                yield
            except Exception:
                self.break_off()
                raise

    async def _end_whole(self, body: bytes, status: int) -> None:
        if self._open is None:
            headers = {"Retry-After": _RETRY_AFTER} if status in (429, 503) else None
            await self._end(web.Response(body=body, status=status, headers=headers, content_type="application/json"))
        else:
            await self._open.write(body)
            await self._end(self._open)

    async def _end(self, response: web.StreamResponse) -> None:
        if self.is_closed:
            raise ClientGone(self.id)
        await response.prepare(self._request)
        await response.write_eof()
        if not self.over.done():
            self.over.set_result(response)

    async def _streaming(self, call: str) -> tuple[web.StreamResponse, Stream]:
        open = await self._opened(_SSE)
        if self._stream is None:
            self._stream = self._protocol.stream(self._head(call), self._asked)
            await open.write(self._stream.opening())
        return open, self._stream

    async def _opened(self, headers: dict[str, str]) -> web.StreamResponse:
        if self.is_closed:
            raise ClientGone(self.id)
        if self._open is None:
            self._open = web.StreamResponse(headers=headers)
            await self._open.prepare(self._request)
        return self._open

    def break_off(self) -> None:
        """End it without a word; its client asks again."""
        transport = self._request.transport
        if transport is not None:
            transport.abort()
        if not self.over.done():
            self.over.cancel()

    def _finished(self, reply: Reply) -> Finished:
        usage = Usage(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens, cached_tokens=reply.cached_tokens)
        logprobs = self._tokens(reply.ids, reply.logprobs) if self._asked.logprobs else ()
        return Finished(
            answer=reply.answer, finish=reply.finish, usage=usage, logprobs=logprobs,
            echo=reply.echo, previous=reply.previous, created=reply.created,
        )  # fmt: skip

    def _head(self, call: str) -> Head:
        return Head(call=call, created=self._created, model=self._asked.model)


class Connections:
    """All of them by id; its methods are the actions that speak to clients."""

    def __init__(self, tokens: DescribeTokens) -> None:
        self._tokens = tokens
        self._open: dict[str, Connection] = {}
        self._numbers = itertools.count()

    def add(self, execution: str, request: web.Request, protocol: Protocol, asked: ChatRequest) -> Connection:
        connection = Connection(f"c{next(self._numbers)}", execution, request, protocol, asked, self._tokens)
        self._open[connection.id] = connection
        return connection

    def drop(self, connection: Connection) -> None:
        self._open.pop(connection.id, None)

    def closed(self, execution: str) -> list[Connection]:
        """Connections of this execution whose client is gone already."""
        return [connection for connection in self._open.values() if connection.execution == execution and connection.is_closed]

    async def keep_alive(self, key: str, action: KeepAlive, progress: Callable[[Any], None]) -> None:
        await self._get(action.conn).keep_alive(action.call)

    async def say(self, key: str, action: Say, progress: Callable[[Any], None]) -> None:
        await self._get(action.conn).say(action)

    async def reply(self, key: str, action: Reply, progress: Callable[[Any], None]) -> None:
        """Returns when everything was handed to the connection; raises when the client is gone."""
        await self._get(action.conn).reply(action)

    async def refuse(self, key: str, action: Refuse, progress: Callable[[Any], None]) -> None:
        error = RequestError(action.text, status=action.status, code=action.code, field=_FIELDS.get(action.code, ""), facts=action.facts)
        await self._get(action.conn).refuse(error)

    async def confirm(self, key: str, action: Confirm, progress: Callable[[Any], None]) -> None:
        await self._get(action.conn).confirm()

    async def hang_up(self, key: str, action: HangUp, progress: Callable[[Any], None]) -> None:
        self._get(action.conn).break_off()

    def _get(self, conn: str) -> Connection:
        connection = self._open.get(conn)
        if connection is None:
            raise ClientGone(conn)
        return connection


_FIELDS = {"context_length_exceeded": "messages", "invalid_messages": "messages", "invalid_stop": "stop"}
"""Field an error of the machine is about."""
