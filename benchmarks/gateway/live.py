"""1,000 executions on one shard, one call of each in flight at the same time; what an idle execution keeps; files they leave."""

import asyncio
import time

from benchmarks.gateway.bodies import ShortBodies
from benchmarks.gateway.client import Connection, connect
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.targets import GyreGateway, Stub

NUM = 1000
WITHIN_S = 60.0


def measure(gateway: GyreGateway, stub: Stub, figures: Figures) -> None:
    """`gateway` has served nothing yet."""
    assert gateway.process is not None
    bodies = ShortBodies()
    stub.tell("route/now")
    # What the first calls allocate for good (caches, buffers) belongs to the shard, not to an execution.
    errors = asyncio.run(_all(gateway, bodies, stub, range(64), held=False))
    before = gateway.process.memory_kib()
    stub.tell("route/held")
    begin = time.perf_counter()
    errors += asyncio.run(_all(gateway, bodies, stub, range(64, 64 + NUM), held=True))
    took = time.perf_counter() - begin
    idle = gateway.process.memory_kib() - before
    stub.tell("route/now")
    figures.put("files_per_1000_executions", sum(path.is_file() for path in gateway.folder.root.rglob("*")))
    figures.put("live_1000_errors", errors)
    figures.put("live_1000_s", took)
    figures.put("memory_kib_per_idle_execution", idle / NUM)


async def _all(gateway: GyreGateway, bodies: ShortBodies, stub: Stub, executions: range, *, held: bool) -> int:
    """One call each; returns how many had no answer with status 200."""
    open: list[Connection] = [await connect(gateway.port) for _ in executions]
    asked = [
        asyncio.ensure_future(connection.ask(gateway.request(number, bodies.next())))
        for connection, number in zip(open, executions, strict=True)
    ]
    loop, until = asyncio.get_running_loop(), time.monotonic() + WITHIN_S
    while held and (await loop.run_in_executor(None, stub.tell, "held"))["held"] < len(asked):
        if time.monotonic() > until:
            raise RuntimeError(f"{len(asked)} calls are not in flight after {WITHIN_S:.0f} s")
        await asyncio.sleep(0.05)
    if held:
        await loop.run_in_executor(None, stub.tell, "release")
    given = await asyncio.gather(*asked, return_exceptions=True)
    for connection in open:
        connection.close()
    await asyncio.sleep(0.3)
    return sum(isinstance(one, BaseException) or one[0] != 200 for one in given)
