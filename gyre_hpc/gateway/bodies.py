"""Bodies of requests, within bounds: so many bytes, so many seconds. A client that sends for ever costs a connection for a while.

What is beyond a bound is refused while it is being read: memory never grows by what a client sends, but by the limit.
"""

from aiohttp import web

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.shell.timers import within


class UnreadBody(RequestError):
    """The body is not read to its end: nobody knows where on this connection the next request would begin."""

    def __init__(self, text: str, status: int, code: str) -> None:
        super().__init__(text, field="body", status=status, code=code)


class Bodies:
    """Reads them. The limit of bytes is the application's (`gateway.max_body_bytes`)."""

    def __init__(self, deadline_s: float) -> None:
        """`deadline_s`: for the whole body, from when its headers were read."""
        self._deadline_s = deadline_s

    async def read(self, request: web.Request) -> bytes:
        """Raises UnreadBody: 413 too long, 408 too slow, 400 encoded wrongly."""
        if (request.content_length or 0) > request.client_max_size:
            raise _too_large(request)
        try:
            async with within(self._deadline_s):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _too_large(request) from None
        except TimeoutError:
            text = f"body: not complete after {self._deadline_s:g} s (gateway.body_deadline_s); send it again"
            raise UnreadBody(text, 408, "request_timeout") from None
        except web.RequestPayloadError as error:
            raise UnreadBody(f"body: {' '.join(str(error).split())[:200]}", 400, "invalid_body") from None


def _too_large(request: web.Request) -> UnreadBody:
    text = f"body: larger than {request.client_max_size} bytes (gateway.max_body_bytes)"
    return UnreadBody(text, 413, "request_too_large")
