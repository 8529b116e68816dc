"""The subset of SGLang's native HTTP API that gyre_hpc speaks, for every engine of ours.

Every request needs `Authorization: Bearer <run token>`. POST /generate may carry `X-Gyre-Term`: any but the open term
gets 409. The gate is checked after the body was read and right before the call is taken, with nothing awaited between:
no request gets in behind a closed gate, and none waits before it. A client that disconnects aborts its call.

asyncio sets TCP_NODELAY on every connection it accepts.
"""

import asyncio
import hmac
from typing import Any

import msgspec
import orjson
from aiohttp import web

from gyre_hpc.engines.backend import Backend, PauseMode
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.request import BadRequest, parse_generate
from gyre_hpc.ports import listen

_WRITE_BUFFER = 256 << 20
"""A client that stops reading must not hold up a switch: answers go to memory, up to this many bytes."""
_MAX_BODY = 64 << 20


class _Abort(msgspec.Struct):
    rid: str = ""
    abort_all: bool = False


class _Pause(msgspec.Struct):
    mode: PauseMode = PauseMode.abort


class _Version(msgspec.Struct):
    new_version: str
    abort_all_requests: bool = True


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _error(status: int, message: str) -> web.Response:
    return _json({"error": {"message": message}}, status)


class HttpSurface:
    """Serves one Backend."""

    def __init__(self, backend: Backend, run_token: str, host: str, port: int = 0) -> None:
        self._backend, self._host, self._port = backend, host, port
        self._bearer = f"Bearer {run_token}".encode()
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    def add_to(self, app: web.Application) -> None:
        """Serve on `app`, which is not listening yet (a process that has an address already)."""
        app.middlewares.append(self._authorize)
        app.router.add_post("/generate", self._generate)
        for path, handler in (
            ("/abort_request", self._abort_request),
            ("/pause_generation", self._pause_generation),
            ("/continue_generation", self._continue_generation),
            ("/flush_cache", self._flush_cache),
            ("/update_weight_version", self._update_weight_version),
        ):
            app.router.add_post(path, handler)
        for path, handler in (
            ("/server_info", self._server_info),
            ("/model_info", self._model_info),
            ("/health", self._health),
            ("/v1/loads", self._loads),
        ):
            app.router.add_get(path, handler)

    async def start(self) -> str:
        """Listen (port 0: any free one); return the base URL."""
        app = web.Application(client_max_size=_MAX_BODY)
        self.add_to(app)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        sock = listen(self._host, self._port)
        try:
            await self._runner.setup()
            server = self._runner.server
            assert server is not None
            # Listening once there is something to close: we may be cancelled.
            self._listening = await asyncio.get_running_loop().create_server(server, sock=sock, backlog=128, start_serving=False)
        except BaseException:
            sock.close()
            raise
        await self._listening.start_serving()
        host, port = sock.getsockname()[:2]
        return f"http://{host}:{port}"

    def cut(self) -> None:
        """Clients see connections that broke."""
        if self._listening is not None:
            self._listening.close()
        server = self._runner.server if self._runner is not None else None
        for handler in server.connections if server is not None else ():
            if handler.transport is not None:
                handler.transport.abort()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._bearer):
            return _error(401, "Authorization: give the run token as a Bearer token")
        try:
            response: web.StreamResponse = await handler(request)
            return response
        except (BadRequest, msgspec.MsgspecError) as error:
            return _error(400, str(error))

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        backend, book = self._backend, self._backend.book
        has_decode = backend.decode is not None
        asked = parse_generate(await request.read(), backend.max_context, backend.vocab_size, has_decode=has_decode)
        failure = backend.failure()
        if failure is not None:
            return _error(500, failure)
        refusal = book.refusal(request.headers.get("X-Gyre-Term"))
        if refusal is not None:
            return _json({"error": refusal, "term": book.term}, 409)
        before = book.of_rid(asked.rid)
        if before is not None:
            # A client that restarted asks again before its broken connection was noticed here.
            backend.abort(before, "superseded by a request with the same rid")
        call = book.take(asked, backend.version_text())
        try:
            backend.submit(call)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=_WRITE_BUFFER)
            return await (self._answer_stream(request, call) if asked.stream else self._answer_whole(request, call))
        finally:
            book.drop(call)
            if not call.is_over:
                backend.abort(call, "client disconnected")

    async def _answer_whole(self, request: web.Request, call: LiveCall) -> web.Response:
        while not call.is_over:
            call.changed.clear()
            await call.changed.wait()
        response = _error(call.status, call.error) if call.error is not None else _json(call.answer.whole(call.age_s()))
        # Written here, not by the server afterwards: a call counts as live until its answer is out.
        await response.prepare(request)
        await response.write_eof()
        return response

    async def _answer_stream(self, request: web.Request, call: LiveCall) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        show = call.answer.news if call.request.incremental else call.answer.whole
        while True:
            # Cleared before reading: a piece that comes during the write below sets it again.
            call.changed.clear()
            error, is_last = call.error, call.answer.finish is not None
            if is_last or call.answer.shown < len(call.answer.ids):
                await response.write(b"data: " + orjson.dumps(show(call.age_s())) + b"\n\n")
            if error is not None:
                told = {"message": error} if call.status == 500 else {"message": error, "code": call.status}
                await response.write(b"data: " + orjson.dumps({"error": told}) + b"\n\n")
                break
            if is_last:
                await response.write(b"data: [DONE]\n\n")
                break
            await call.changed.wait()
        await response.write_eof()
        return response

    async def _abort_request(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=_Abort)
        named = self._backend.book.of_rid(asked.rid)
        for call in self._backend.book.live() if asked.abort_all else [named] if named else []:
            self._backend.abort(call, "aborted by /abort_request")
        return web.Response()

    async def _pause_generation(self, request: web.Request) -> web.Response:
        await self._backend.pause(msgspec.json.decode(await request.read() or b"{}", type=_Pause).mode)
        return _json({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue_generation(self, request: web.Request) -> web.Response:
        await self._backend.resume()
        return _json({"message": "Generation continued successfully.", "status": "ok"})

    async def _flush_cache(self, request: web.Request) -> web.Response:
        if await self._backend.flush_cache():
            return web.Response(text="Cache flushed.\n")
        return web.Response(text="Cache not flushed: requests are live.\n", status=400)

    async def _update_weight_version(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=_Version)
        if asked.abort_all_requests:
            for call in self._backend.book.live():
                self._backend.abort(call, "aborted by /update_weight_version")
        await self._backend.relabel(asked.new_version)
        return _json({"success": True, "message": "Weight version updated.", "new_version": asked.new_version})

    async def _server_info(self, request: web.Request) -> web.Response:
        backend = self._backend
        state = {"term": backend.book.term, "admission_open": backend.book.is_open, "weight_version": backend.version_text()}
        return _json(state | backend.facts() | {"max_total_num_tokens": backend.loads().num_total_tokens})

    async def _model_info(self, request: web.Request) -> web.Response:
        backend = self._backend
        return _json(
            {
                "model_path": "",
                "is_generation": True,
                "weight_version": backend.version_text(),
                "context_length": backend.max_context,
                "vocab_size": backend.vocab_size,
            }
        )

    async def _health(self, request: web.Request) -> web.Response:
        failure = self._backend.failure()
        return web.Response(status=200 if failure is None else 503, text=failure or "")

    async def _loads(self, request: web.Request) -> web.Response:
        loads = self._backend.loads()
        row = {
            "dp_rank": 0,
            "num_running_reqs": loads.num_running,
            "num_waiting_reqs": loads.num_waiting,
            "num_total_reqs": loads.num_running + loads.num_waiting,
            "num_used_tokens": loads.num_used_tokens,
            "max_total_num_tokens": loads.num_total_tokens,
            "token_usage": loads.num_used_tokens / max(loads.num_total_tokens, 1),
        }
        return _json({"loads": [row]})
