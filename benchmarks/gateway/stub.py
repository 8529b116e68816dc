"""The other side of every proxy: an engine (SGLang's /generate, as our cells speak it), a Chat Completions server with the same
answer, and the controller and supervisor a gateway shard reports to. One process, answers made beforehand, no bottleneck.

    python -m benchmarks.gateway.stub PLAN.json      first line of its output: the port

Engine modes are the first part of a path, so that a routing table chooses them: /now answers at once, /held waits for GET /release,
/paced sends a piece of text every 10 ms, which is the time it left.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.gateway.plan import CHUNK_TOKENS, GAP_S, NUM_CHUNKS, STAMP_DIGITS, Plan
from gyre_hpc.protocol.envelope import Envelope, decode, encode
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.supervision import Directory, Entry, Register
from gyre_hpc.protocol.to_batch import GatewayReport
from gyre_hpc.protocol.to_gateway import Row, Table

_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST = b"0\r\n\r\n"
_WHOLE_BODY = 1 << 16
"""Longer bodies are counted, not kept."""


def whole(body: bytes, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunk(event: dict[str, Any] | None) -> bytes:
    """One server-sent event as an HTTP chunk of its own, as a server that flushes after each writes it."""
    data = b"data: " + (orjson.dumps(event) if event is not None else b"[DONE]") + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def engine_event(ids: list[int], start: int, finish: dict[str, Any] | None) -> dict[str, Any]:
    """What one of our engines says about `ids`, output tokens from `start` on."""
    meta = {
        "id": "0",
        "finish_reason": finish,
        "prompt_tokens": 500,
        "completion_tokens": start + len(ids),
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "weight_version": "0.0",
        "weight_versions": [{"version": "0.0", "start": start, "end": start + len(ids)}],
        "oldest_kv_version": "0.0",
        "num_retractions": 0,
        "input_token_logprobs": [],
        "output_token_logprobs": [[-0.6931471824645996 - token / 1e6, token, None] for token in ids],
        "output_token_logprobs_length": len(ids),
    }
    return {"text": "", "output_ids": ids, "meta_info": meta, "output_start": start}


def engine_answer(ids: Sequence[int]) -> bytes:
    """A whole stream, one event per token."""
    last = len(ids) - 1
    stop = {"type": "stop", "matched": ids[-1]}
    events = [chunk(engine_event([token], place, stop if place == last else None)) for place, token in enumerate(ids)]
    return _EVENTS + b"".join(events) + chunk(None) + _LAST


def chat_answer(text: str, tokens: int) -> bytes:
    usage = {"prompt_tokens": 500, "completion_tokens": tokens, "total_tokens": 500 + tokens}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "mock"}
    return whole(orjson.dumps(head | {"choices": [choice], "usage": usage}))


def chat_event(text: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text} if text is not None else {}, "finish_reason": None if text is not None else "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "mock", "choices": [choice]}


class Control:
    """Controller and supervisor: answers reports and heartbeats as the real ones do, so that nothing piles up in the shard."""

    def __init__(self, plan: Plan) -> None:
        self.url = ""
        self._plan, self._mode, self._number = plan, "now", itertools.count()
        self._table, self._acked, self._gateway = 0, -1, ""
        self._posts: set[asyncio.Task[None]] = set()
        self._http: aiohttp.ClientSession | None = None

    def route(self, mode: str) -> None:
        """New rows from now on."""
        self._mode, self._table = mode, self._table + 1
        self._send("controller", self._rows())

    def take(self, body: bytes) -> None:
        match decode(body).body:
            case Register(url=url):
                if url != self._gateway:
                    self._gateway, self._acked = url, -1
                entries = (Entry("controller", 1, self.url), Entry("gateway-0", 1, url))
                self._send("supervisor-0", Directory(next(self._number), entries))
                self._send("controller", self._rows())
            case GatewayReport(first_fact=first, facts=facts):
                self._acked = first + len(facts) - 1
                self._send("controller", self._rows())

    def _rows(self) -> Table:
        row = Row("cell-0", f"{self.url}/{self._mode}", 1, Version(0, 0), ("train", "eval"), 100_000)
        return Table(self._table, 5.0, (row,), self._acked)

    def _send(self, sender: str, message: Any) -> None:
        if self._gateway:
            task = asyncio.get_running_loop().create_task(self._post(encode(Envelope(sender, 1, message))))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    async def _post(self, body: bytes) -> None:
        self._http = self._http or aiohttp.ClientSession()
        async with self._http.post(f"{self._gateway}/messages", data=body, headers={"Authorization": f"Bearer {self._plan.run_token}"}):
            pass


class World:
    """What all connections share."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.control = plan, Control(plan)
        self.answers = {name: engine_answer(ids) for name, ids in plan.answers.items()}
        self.chat = chat_answer(plan.text, len(plan.answers["now"]))
        self.held: list[Connection] = []


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._head, self._body, self._path, self._left = b"", bytearray(), "", 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._path:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            lines = head.decode("latin-1").split("\r\n")
            self._path, self._head, self._body = lines[0].split(" ")[1], b"", bytearray()
            sizes = [line[15:] for line in lines if line.lower().startswith("content-length:")]
            self._left = int(sizes[0]) if sizes else 0
        if self._left <= _WHOLE_BODY:
            self._body += data
        self._left -= len(data)
        if self._left <= 0:
            path, self._path = self._path, ""
            self._answer(path)

    def _answer(self, path: str) -> None:
        world, write = self._world, self.transport.write
        mode, _, rest = path[1:].partition("/")
        if rest == "generate" and mode in world.answers:
            write(world.answers[mode])
        elif path == "/now/v1/chat/completions":
            write(world.chat)
        elif path == "/held/generate":
            world.held.append(self)
        elif mode == "paced":
            write(_EVENTS)
            asyncio.get_running_loop().create_task(self._paced(rest == "generate"))
        elif path == "/messages":
            write(b"HTTP/1.1 204 No Content\r\n\r\n")
            world.control.take(bytes(self._body))
        else:
            self._told(mode, rest)

    def _told(self, what: str, how: str) -> None:
        """Orders of the benchmark."""
        world, told = self._world, {"held": len(self._world.held)}
        if what == "route":
            world.control.route(how)
        elif what == "release":
            for connection in world.held:
                connection.transport.write(world.answers["now"])
            world.held.clear()
        self.transport.write(whole(orjson.dumps(told)))

    async def _paced(self, is_engine: bool) -> None:
        plan = self._world.plan
        for place in range(NUM_CHUNKS):
            await asyncio.sleep(GAP_S)
            stamp = f"{time.monotonic_ns():0{STAMP_DIGITS}d}"
            if is_engine:
                ids = [plan.digits[int(digit)] for digit in stamp] + [plan.space]
                self.transport.write(chunk(engine_event(ids, CHUNK_TOKENS * place, None)))
            else:
                self.transport.write(chunk(chat_event(stamp + " ")))
        stop = plan.answers["now"][-1]
        last = engine_event([stop], CHUNK_TOKENS * NUM_CHUNKS, {"type": "stop", "matched": stop}) if is_engine else chat_event(None)
        self.transport.write(chunk(last) + chunk(None) + _LAST)


async def serve(plan: Plan) -> None:
    world = World(plan)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(world), "127.0.0.1", 0, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    world.control.url = f"http://127.0.0.1:{port}"
    print(port, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Plan.read(Path(sys.argv[1]))))
