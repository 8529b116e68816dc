"""Bodies of requests, within bounds: so many bytes, so many seconds. A client that sends for ever costs a connection for a while.

What is beyond a bound is refused while it is being read: memory never grows by what a client sends, but by the limit.
"""

from aiohttp import web

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.shell.timers import within


class Bodies:
    """Reads them. The limit of bytes is the application's (`gateway.max_body_bytes`)."""

    def __init__(self, deadline_s: float) -> None:
        """`deadline_s`: for the whole body, from when its headers were read."""
        self._deadline_s = deadline_s

    async def read(self, request: web.Request) -> bytes:
        """Raises RequestError: 413 too long, 408 too slow, 400 encoded wrongly."""
        if (request.content_length or 0) > request.client_max_size:
            raise _too_large(request)
        try:
            async with within(self._deadline_s):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _too_large(request) from None
        except TimeoutError:
            text = f"body: not complete after {self._deadline_s:g} s (gateway.body_deadline_s); send it again"
            raise RequestError(text, status=408, code="request_timeout", field="body") from None
        except web.RequestPayloadError as error:
            text = f"body: {' '.join(str(error).split())[:200]}"
            raise RequestError(text, field="body", code="invalid_body") from None


def _too_large(request: web.Request) -> RequestError:
    text = f"body: larger than {request.client_max_size} bytes (gateway.max_body_bytes)"
    return RequestError(text, status=413, code="request_too_large", field="body")
