"""A bare aiohttp pass-through: reads a body, posts it, hands the answer back. First line of its output: the port.

python -m benchmarks.gateway.passthrough UPSTREAM-URL
"""

import asyncio
import sys

import aiohttp
from aiohttp import web

_JSON = {"Content-Type": "application/json"}


class PassThrough:
    """One upstream."""

    def __init__(self, upstream: str, http: aiohttp.ClientSession) -> None:
        self._upstream, self._http = upstream, http

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        async with self._http.post(self._upstream + request.path, data=body, headers=_JSON) as given:
            if given.content_type != "text/event-stream":
                return web.Response(body=await given.read(), status=given.status, content_type="application/json")
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            async for data in given.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response


async def serve(upstream: str) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/{path:.*}", PassThrough(upstream, http).answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
