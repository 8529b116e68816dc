"""What harnesses see: /e/<execution>/v1/…, a bearer token per execution, errors in the protocol's own JSON."""

from collections.abc import Callable

import orjson
from aiohttp import web

from gyre_hpc.gateway.connections import Connections
from gyre_hpc.gateway.protocols.base import ChatRequest, Protocol, RequestError
from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions, models_body
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.machines.base import Input, Received
from gyre_hpc.machines.call.actions import CLIENTS, Arrived, Left
from gyre_hpc.machines.call.turns import digest, digest_turns
from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.protocol.tokens import is_execution_token
from gyre_hpc.shell.inbox import OPEN

PREFIX = "/e/"
Tell = Callable[[Input], None]


class HarnessSurface:
    """Turns HTTP requests into Arrived and Left."""

    def __init__(self, *, run_token: str, model: str, harness: Harness, connections: Connections, tell: Tell) -> None:
        self._run_token, self._model, self._harness = run_token, model, harness
        self._connections, self._tell = connections, tell
        self._chat = ChatCompletions()

    def add_to(self, app: web.Application) -> None:
        app[OPEN].add(PREFIX)
        app.router.add_post(PREFIX + "{execution}/v1/chat/completions", self._chat_completions)
        app.router.add_get(PREFIX + "{execution}/v1/models", self._models)
        app.router.add_route("*", PREFIX + "{rest:.*}", self._unknown)

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, self._chat)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        try:
            self._execution(request)
        except RequestError as error:
            return _error_response(self._chat, error)
        return web.Response(body=models_body(self._model), content_type="application/json")

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return _error_response(
            self._chat, RequestError(f"{request.method} {request.path}: no such path here", status=404, code="not_found")
        )

    async def _answer(self, request: web.Request, protocol: Protocol) -> web.StreamResponse:
        try:
            execution = self._execution(request)
            asked = protocol.parse(await _body(request))
        except RequestError as error:
            return _error_response(protocol, error)
        for gone in self._connections.closed(execution):
            # A retry must not overtake the news that its first connection is closed.
            self._tell(Received(CLIENTS, Left(gone.id)))
        connection = self._connections.add(execution, request, protocol, asked)
        try:
            self._tell(Received(CLIENTS, self._arrived(connection.id, execution, request, asked)))
            response: web.StreamResponse = await connection.over
            return response
        finally:
            self._connections.drop(connection)
            if not connection.over.done() or connection.over.cancelled():
                self._tell(Received(CLIENTS, Left(connection.id)))

    def _execution(self, request: web.Request) -> str:
        execution = request.match_info["execution"]
        try:
            ExecutionId.parse(execution)
        except ValueError as error:
            raise RequestError(str(error), status=404, code="execution_unknown") from None
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if kind.lower() != "bearer" or not is_execution_token(given, self._run_token, execution):
            raise RequestError("Authorization: give this execution's key as a Bearer token", status=401, code="invalid_api_key")
        return execution

    def _arrived(self, conn: str, execution: str, request: web.Request, asked: ChatRequest) -> Arrived:
        headers = {name.lower(): value for name, value in request.headers.items()}
        # Header bytes that are no UTF-8 arrive as lone surrogates, which no record can hold.
        thread = self._harness.thread(headers, asked.body).encode("utf-8", "replace").decode()
        turns = digest_turns(asked.messages)
        identity = digest(execution.encode(), thread.encode(), asked.identity, *(turn.digest for turn in turns))
        return Arrived(
            conn=conn,
            execution=execution,
            role=self._harness.role(headers, asked.body),
            thread=thread,
            request_hash=identity.hex(),
            messages=asked.messages,
            turns=turns,
            tools=asked.tools,
            tools_digest=digest(orjson.dumps(asked.tools, option=orjson.OPT_SORT_KEYS)),
            requested=asked.requested,
            max_new_tokens=asked.max_new_tokens,
            stream=asked.stream,
        )


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        text = f"body: {error.text or 'too large'}; the limit is gateway.max_body_bytes"
        raise RequestError(text, status=413, code="request_too_large", field="body") from None


def _error_response(protocol: Protocol, error: RequestError) -> web.Response:
    return web.Response(body=protocol.error(error), status=error.status, content_type="application/json")
