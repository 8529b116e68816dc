"""How late a streamed piece is: chunks 10 ms apart with the time they left the engine in their text, on connections used before.

Our gateway hands tokens on once they are in the journal, with fsync; here it writes them as they come (gateway.progress_tokens=1).
And how late keep-alives are: a call whose engine says nothing, keep-alives asked for every KEEPALIVE_S.
"""

import asyncio
import re
import statistics
import time
from collections.abc import Callable

from benchmarks.gateway.bodies import encode
from benchmarks.gateway.client import post
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.plan import NUM_CHUNKS, STAMP_DIGITS
from benchmarks.gateway.targets import GyreGateway, PassThrough, Stub

KEEPALIVE_S = 0.05
_STREAMS, _USES = 4, 5
_STAMP = re.compile(rb"(?<!\d)(\d{%d}) " % STAMP_DIGITS)
Arrivals = list[float]


def measure(gateway: GyreGateway, bare: PassThrough, stub: Stub, figures: Figures) -> None:
    """`gateway` sends keep-alives every KEEPALIVE_S and writes progress token by token."""
    paced = "/paced/v1/chat/completions"
    floor = asyncio.run(_lags(stub.port, lambda n: post(paced, _body(n), "x")))
    through = asyncio.run(_lags(bare.port, lambda n: post(paced, _body(n), "x")))
    stub.tell("route/paced")
    ours = asyncio.run(_lags(gateway.port, lambda n: gateway.request(n, _body(n))))
    stub.tell("route/held")
    alive = asyncio.run(_keep_alives(gateway.port, gateway.request(5000, _body(5000))))
    stub.tell("release")
    stub.tell("route/now")
    print(f"\nlag of streamed chunks, {_STREAMS} connections, {NUM_CHUNKS} chunks 10 ms apart, first use of each not counted")
    print(f"{'target':<22}{'chunks':>8}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}")
    for name, lags in (("stub (floor)", floor), ("aiohttp pass-through", through), ("gyre gateway", ours), ("gyre keep-alives", alive)):
        print(f"{name:<22}{len(lags):>8}{statistics.median(lags):>9.2f}{_p99(lags):>9.2f}{max(lags):>9.2f}")
    figures.put_lag("keepalive_lag_ms", alive)
    figures.put_lag("chunk_lag_ms", ours)


def _body(number: int) -> bytes:
    return encode([{"role": "user", "content": f"{number} " + "hi" * 500}], stream=True)


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


async def _lags(port: int, request: Callable[[int], bytes]) -> list[float]:
    """Milliseconds of every chunk, the first use of a connection left out (its quick acknowledgements hide a delay)."""

    async def stream(number: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found: list[float] = []
        for use in range(_USES):
            writer.write(request(number * _USES + use))
            lags = await _read(reader)
            found += lags if use else []
        writer.close()
        return found

    return [lag for lags in await asyncio.gather(*map(stream, range(_STREAMS))) for lag in lags]


async def _read(reader: asyncio.StreamReader) -> list[float]:
    """One streamed answer."""
    lags, buffer = [], b""
    while True:
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionResetError(f"stream broke off: {buffer[-300:]!r}")
        now, buffer = time.monotonic_ns(), buffer + data
        ends = 0
        for match in _STAMP.finditer(buffer):
            lags.append((now - int(match[1])) / 1e6)
            ends = match.end()
        is_over = b"[DONE]" in buffer and buffer.endswith(b"0\r\n\r\n")
        buffer = buffer[ends:]
        if is_over:
            return lags


async def _keep_alives(port: int, request: bytes) -> list[float]:
    """Milliseconds by which keep-alives come later than asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    times: Arrivals = []
    while len(times) < 40:
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionResetError("stream broke off while it waited")
        times.append(time.monotonic())
    writer.close()
    pairs = zip(times[2:], times[1:-1], strict=True)
    return [1e3 * (later - earlier - KEEPALIVE_S) for later, earlier in pairs]
