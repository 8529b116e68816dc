"""Outgoing messages: none waits for another's answer, and a burst leaves no more connections than allowed."""

import asyncio

from aiohttp import web

from gyre_hpc.protocol.supervision import SetAside
from gyre_hpc.shell.mail import MOST_AT_ONCE, Mail


def test_a_burst_of_messages_arrives_over_a_few_connections() -> None:
    async def steps() -> None:
        arrived, connections, open = asyncio.Event(), set[object](), asyncio.Event()
        num = 0

        async def take(request: web.Request) -> web.Response:
            nonlocal num
            connections.add(request.transport)
            num += 1
            if num == 5 * MOST_AT_ONCE:
                arrived.set()
            if num >= MOST_AT_ONCE:
                open.set()
            # Nobody is answered before as many ask as may at once.
            await open.wait()
            return web.Response(status=204)

        app = web.Application()
        app.router.add_post("/messages", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        mail = Mail(sender="gateway-0", attempt=1, run_token="t", addresses={"controller": f"http://{host}:{port}"})
        for _ in range(5 * MOST_AT_ONCE):
            mail.send("controller", SetAside("cell-1", "a test"), 20.0)
        await asyncio.wait_for(arrived.wait(), 20.0)
        assert len(connections) == MOST_AT_ONCE
        await mail.close()
        await runner.cleanup()

    asyncio.run(steps())
