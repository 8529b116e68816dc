"""What a harness sends, as it arrives at the gateway: one entry per request, in order."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PREFIX = "/e/"


@dataclass(slots=True)
class Request:
    """One HTTP request of a harness and how it ended."""

    number: int
    method: str
    path: str
    """Below the execution: /v1/messages."""
    query: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    """0: it did not come to an end: the client left, or the shard went."""


class Wiretap:
    """Collects the requests of one scenario, over restarts of the gateway."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.events: list[list[Any]] = []
        """["begin", n] and ["end", n] of requests, ["restart"] of the shard, in order."""

    def add_to(self, app: web.Application) -> None:
        app.middlewares.append(self._listen)

    @web.middleware
    async def _listen(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(PREFIX):
            return await handler(request)
        _, _, path = request.path.removeprefix(PREFIX).partition("/")
        body = await request.read()
        heard = Request(
            number=len(self.requests),
            method=request.method,
            path=f"/{path}",
            query=request.query_string,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        self.requests.append(heard)
        self.events.append(["begin", heard.number])
        try:
            response = await handler(request)
            heard.status = response.status
            return response
        finally:
            self.events.append(["end", heard.number])
