"""An engine of one cell with scripted answers and faults: SGLang's /generate, counter-like (an answer depends on the prompt alone).

It checks what every engine relies on: a continued request must carry exactly the tokens given before. `faults` are taken one
per request: ok, busy (409), refuse (400), fail (500), cut:N (connection dropped after N tokens), reset:N (the same by force, as
when a process is killed), garble:N (what follows is no HTTP), abort:N (finish_reason abort after N),
hang:N (silent after N, until the client goes), late:N (409-free, waits for `gate` after N tokens).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from aiohttp import web

from gyre_hpc.engines.ids_digest import IdsDigest

Answers = Callable[[Sequence[int]], list[int]]


class AnsweringEngine:
    """One cell's engine surface."""

    def __init__(self, answers: Answers, *, version: str = "0.0", run_token: str = "secret", incremental: bool = True) -> None:
        self.answers, self.version, self.incremental = answers, version, incremental
        self.faults: list[str] = []
        self.wrong_digest = False
        """Tell a running hash of other ids."""
        self.requests: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.url = ""
        self._bearer = f"Bearer {run_token}"
        self._runner: web.AppRunner | None = None

    async def start(self) -> "AnsweringEngine":
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/generate", self._generate)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def num_sampled(self) -> int:
        return sum(request["sampled"] for request in self.requests)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == self._bearer
        body = orjson.loads(await request.read())
        fault, _, count = (self.faults.pop(0) if self.faults else "ok").partition(":")
        self.requests.append(body | {"fault": fault, "sampled": 0, "term": request.headers.get("X-Gyre-Term")})
        if fault == "busy":
            return web.json_response({"error": "admission closed", "term": 9}, status=409)
        if fault == "fail":
            return web.Response(text="<html>Internal Server Error</html>", status=500, content_type="text/html")
        if fault == "refuse":
            return web.json_response({"error": {"message": "no"}}, status=400)
        position = body["sampling_params"]["custom_params"]["position"]
        prompt = body["input_ids"][: len(body["input_ids"]) - position]
        answer = self.answers(prompt)
        if body["input_ids"][len(prompt) :] != answer[:position]:
            return web.json_response({"error": {"message": "continued from tokens that were never sampled"}}, status=400)
        rest = answer[position:][: body["sampling_params"]["max_new_tokens"]]
        return await self._stream(request, self.requests[-1], rest, fault, int(count or 0), len(answer) - position)

    async def _stream(
        self, request: web.Request, seen: dict[str, Any], rest: list[int], fault: str, count: int, full: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        given = rest if fault == "ok" or fault == "late" else rest[:count]
        for place in range(len(given)):
            if fault == "late" and place == count:
                await self.gate.wait()
            await response.write(self._event(given[: place + 1], place, None))
            seen["sampled"] += 1
        if fault == "cut":
            assert request.transport is not None
            request.transport.close()
            return response
        if fault in ("reset", "garble"):
            assert request.transport is not None
            if fault == "garble":
                request.transport.write(b"\r\n\0\xff HTTP/9.9 zzz\r\n\r\n")  # type: ignore[attr-defined]
                request.transport.close()
            else:
                request.transport.abort()  # type: ignore[attr-defined]
            return response
        if fault == "hang":
            await asyncio.Event().wait()
        finish = {"type": "abort"} if fault == "abort" else {"type": "stop" if len(rest) == full else "length"}
        digest = IdsDigest([*seen["input_ids"], *given, *([0] if self.wrong_digest else [])]).hexdigest()
        await response.write(self._event(given, len(given), finish, digest) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _event(self, ids: list[int], start: int, finish: dict[str, Any] | None, digest: str = "") -> bytes:
        shown = ids[start:] if self.incremental else ids
        meta = {
            "finish_reason": finish,
            "cached_tokens": 0,
            "weight_version": self.version,
            "weight_versions": [{"version": self.version, "start": 0, "end": len(ids)}],
            "ids_digest": digest,
            "output_token_logprobs": [[-0.5 - token / 1000, token, None] for token in shown],
        }
        event = {"output_ids": shown, "meta_info": meta} | ({"output_start": start} if self.incremental else {})
        return b"data: " + orjson.dumps(event) + b"\n\n"
