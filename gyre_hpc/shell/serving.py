"""An application, listening. Connections that have not made a request yet have a deadline; the library gives them none.

It bounds the wait for the *next* request of a connection, by its keep-alive. A new one that says nothing, or sends its headers
byte by byte, it would keep open for ever.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gyre_hpc.shell.timers import after

HEAD_S = 60.0
"""For the head of a connection's first request, from when it was opened."""


class Serving:
    """Lifecycle: start() -> close(). A handler whose client goes away is cancelled."""

    def __init__(self, app: web.Application, *, head_s: float = HEAD_S, shutdown_s: float = 1.0) -> None:
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=shutdown_s)
        self._head_s = head_s
        self._listening: asyncio.Server | None = None
        self._newcomers: dict[RequestHandler, asyncio.TimerHandle] = {}

    async def start(self, sock: socket.socket) -> str:
        """Serve on a listening socket; return the base URL."""
        try:
            await self._runner.setup()
            # Listening once there is something to close: we may be cancelled.
            self._listening = await asyncio.get_running_loop().create_server(self._opening(), sock=sock, backlog=128, start_serving=False)
        except BaseException:
            sock.close()
            raise
        await self._listening.start_serving()
        host, port = sock.getsockname()[:2]
        return f"http://{host}:{port}"

    def _opening(self) -> Callable[[], RequestHandler]:
        """Makes the handler of each new connection."""
        server = self._runner.server
        assert server is not None
        make_request = server.request_factory

        def asked(message: Any, payload: Any, protocol: RequestHandler, *rest: Any) -> web.BaseRequest:
            self._let_in(protocol)
            return make_request(message, payload, protocol, *rest)

        def opened() -> RequestHandler:
            handler = server()
            self._newcomers[handler] = after(self._head_s, lambda: self._hang_up(handler))
            return handler

        server.request_factory = asked
        return opened

    def cut(self) -> None:
        """No more connections, and those that are open are gone, whatever was under way. close() follows."""
        if self._listening is not None:
            self._listening.close()
        server = self._runner.server
        for handler in server.connections if server is not None else ():
            if handler.transport is not None:
                handler.transport.abort()

    async def close(self) -> None:
        """Take no more connections, end those that are open."""
        if self._listening is not None:
            self._listening.close()
        for handler in list(self._newcomers):
            self._let_in(handler)
        await self._runner.cleanup()

    def _let_in(self, handler: RequestHandler) -> None:
        timer = self._newcomers.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def _hang_up(self, handler: RequestHandler) -> None:
        del self._newcomers[handler]
        handler.force_close()
