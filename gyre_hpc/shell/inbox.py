"""POST /messages: token, attempt and body checked, then handed on; every process has this one endpoint."""

import hmac
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from gyre_hpc.machines.attempts import Sender, sender_of
from gyre_hpc.protocol.envelope import Envelope, decode

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPEN = web.AppKey("open", set)
"""Path prefixes that check a token of their own (the gateway's harness surface)."""


def authorized(request: web.Request, token: str) -> bool:
    """Constant-time check of the bearer token."""
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode(errors="surrogateescape"), f"Bearer {token}".encode())


def make_app(run_token: str, max_body_bytes: int = 64 << 20) -> web.Application:
    """An application whose every path needs the run token, but those below the prefixes in app[OPEN]."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not any(request.path.startswith(prefix) for prefix in request.app[OPEN]) and not authorized(request, run_token):
            return web.Response(status=401, text="run token missing or wrong")
        return await handler(request)

    app = web.Application(middlewares=[check], client_max_size=max_body_bytes)
    app[OPEN] = set()
    return app


class Inbox:
    """Incoming messages of one process. `deliver` is given each with its bytes."""

    def __init__(self, *, attempt: int, deliver: Callable[[Envelope, int], None], superseded: Callable[[str], None]) -> None:
        self._attempt, self._deliver, self._superseded = attempt, deliver, superseded

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/messages", self._post)

    async def _post(self, request: web.Request) -> web.Response:
        try:
            body = await request.read()
            envelope = decode(body)
        except msgspec.MsgspecError as error:
            return web.Response(status=400, text=str(error))
        sender = sender_of(envelope.attempt, self._attempt)
        if sender is Sender.over:
            return web.Response(status=409, text=f"attempt {self._attempt} of this run lives; {envelope.attempt} is over")
        if sender is Sender.newer:
            self._superseded(f"{envelope.sender} belongs to attempt {envelope.attempt}; this is {self._attempt}")
            return web.Response(status=503)
        self._deliver(envelope, len(body))
        return web.Response(status=204)
