"""SGLang's events as our chunks: shapes as a server of 0.5.23 sent them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from gyre_hpc.engines.sglang.client import Client, chunk_of
from gyre_hpc.engines.sglang.parts import Address, Chunk, NotAnswered, Refused, ServerLost


def event(ids: list[int], total: int, **meta: Any) -> bytes:
    told = {
        "id": "r",
        "finish_reason": None,
        "prompt_tokens": 11,
        "weight_version": "0.1",
        "cached_tokens": 8,
        "completion_tokens": total,
        "output_token_logprobs": [[-0.5, token, None] for token in ids],
        "e2e_latency": 1.0,
    }
    return json.dumps({"text": "", "output_ids": ids, "meta_info": told | meta}).encode()


def test_a_chunk_says_where_its_news_begin() -> None:
    assert chunk_of(event([5, 6, 7], 10)) == Chunk(start=7, ids=(5, 6, 7), logprobs=(-0.5,) * 3, cached=8, version="0.1")


def test_an_abort_from_a_queue_repeats_no_token() -> None:
    """There the last token comes again, all log-probs come again, and news that waited may stand before them."""
    every = [[-float(token), token, None] for token in (1, 2, 3, 4)]
    finish = {"type": "abort", "message": "Abort in waiting queue"}
    gone = {"prompt_tokens": None, "cached_tokens": 0, "finish_reason": finish}
    alone = chunk_of(event([4], 4, output_token_logprobs=every, **gone))
    assert (alone.start, alone.ids, alone.finish) == (4, (), finish)
    merged = chunk_of(event([3, 4, 4], 4, output_token_logprobs=[*every[2:], *every], **gone))
    assert (merged.start, merged.ids, merged.logprobs) == (2, (3, 4), (-3.0, -4.0))
    assert chunk_of(event([], 0, output_token_logprobs=[], **gone)).ids == ()


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b'{"error":{"message":"too long","type":"invalid_request_error","code":400}}', Refused, "too long"),
        (b'{"error":{"message":"KVTransferError","code":500}}', NotAnswered, "KVTransferError"),
        (b'{"error":"down"}', NotAnswered, "down"),
        (b'{"output_ids":[1]}', ServerLost, "without meta_info"),
        (b"{", ServerLost, "cannot be read"),
        (event([1, 2], 2, output_token_logprobs=[[-1.0, 1, None]]), ServerLost, "2 tokens with 1 log-probs"),
        (event([1, 2], 2, output_token_logprobs=[[-1.0, 2, None], [-1.0, 1, None]]), ServerLost, "of other tokens"),
        (event([1], 1, output_token_logprobs=[[None, 1, None]]), ServerLost, "cannot be read"),
        (event([1], 1, weight_version=3), ServerLost, "cannot be read"),
    ],
)
def test_what_is_no_chunk_is_an_error_of_its_kind(data: bytes, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        chunk_of(data)


@asynccontextmanager
async def serving(handler: Any, path: str = "/generate") -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = Client(Address(url=f"http://127.0.0.1:{runner.addresses[0][1]}", key="the-key"))
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def test_headers_are_the_first_chunk_and_events_may_be_cut_anywhere() -> None:
    async def main() -> None:
        goes_on = asyncio.Event()

        async def handler(request: web.Request) -> web.StreamResponse:
            assert request.headers["Authorization"] == "Bearer the-key"
            assert await request.json() == {"rid": "a."}
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await goes_on.wait()
            data = b"data: " + event([5], 1) + b"\n\ndata: " + event([6], 2, finish_reason={"type": "length", "length": 2}) + b"\n\n"
            for place in range(0, len(data), 7):
                await response.write(data[place : place + 7])
            await response.write(b"data: [DONE]\n\n")
            return response

        async with serving(handler) as client:
            chunks = []
            async for chunk in client.generate({"rid": "a."}):
                chunks.append(chunk)
                goes_on.set()
        assert [chunk.ids for chunk in chunks] == [(), (5,), (6,)]
        assert chunks[-1].finish == {"type": "length", "length": 2}

    asyncio.run(main())


@pytest.mark.parametrize(("status", "kind"), [(400, Refused), (503, ServerLost)])
def test_a_refusal_before_the_stream_has_the_servers_words(status: int, kind: type[Exception]) -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            return web.json_response({"error": "unknown field `foo`"}, status=status)

        async with serving(handler) as client:
            with pytest.raises(kind, match="unknown field `foo`"):
                _ = [chunk async for chunk in client.generate({})]

    asyncio.run(main())


def test_a_connection_that_breaks_is_a_lost_server() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"data: " + event([5], 1) + b"\n\n")
            assert request.transport is not None
            request.transport.abort()
            return response

        async with serving(handler) as client:
            with pytest.raises(ServerLost, match="POST /generate"):
                _ = [chunk async for chunk in client.generate({})]
        with pytest.raises(ServerLost, match="POST /abort_request"):
            late = Client(Address(url="http://127.0.0.1:1", key=""))
            try:
                await late.abort("a.")
            finally:
                await late.close()

    asyncio.run(main())


@pytest.mark.parametrize(("status", "is_idle"), [(200, True), (400, False)])
def test_flush_says_whether_the_server_was_idle_in_time(status: int, is_idle: bool) -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            assert request.query["timeout"] == "2.5"
            return web.Response(status=status, text="Cache flushed.\n")

        async with serving(handler, "/flush_cache") as client:
            assert await client.flush(2.5) is is_idle

    asyncio.run(main())


def test_an_answer_in_words_is_an_answer_and_a_deadline_is_a_lost_server() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            if (await request.json()).get("hang"):
                await asyncio.Event().wait()
            return web.Response(text="Done.")

        async with serving(handler, "/begin_weight_update") as client:
            assert await client.ask("/begin_weight_update", {}, 5.0) == "Done."
            with pytest.raises(ServerLost, match="TimeoutError"):
                await client.ask("/begin_weight_update", {"hang": True}, 0.05)
            assert not await client.is_well(5.0), "no such path here"

    asyncio.run(main())
