"""What harnesses see: /e/<execution>/v1/…, a bearer token per execution, errors in the protocol's own JSON."""

from aiohttp import web

from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.connections import Connections
from gyre_hpc.gateway.model_calls import ModelCalls, Tell, error_response
from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions, models_body
from gyre_hpc.harnesses.base import Harness
from gyre_hpc.shell.inbox import OPEN

PREFIX = "/e/"
BASE = PREFIX + "{execution}"


class HarnessSurface:
    """The routes of one shard."""

    def __init__(self, *, run_token: str, model: str, harness: Harness, connections: Connections, tell: Tell) -> None:
        self._access, self._model = Access(run_token), model
        self._calls = ModelCalls(access=self._access, harness=harness, connections=connections, tell=tell)
        self._chat = ChatCompletions()

    def add_to(self, app: web.Application) -> None:
        app[OPEN].add(PREFIX)
        app.router.add_post(BASE + "/v1/chat/completions", self._chat_completions)
        app.router.add_get(BASE + "/v1/models", self._models)
        app.router.add_route("*", PREFIX + "{rest:.*}", self._unknown)

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._calls.answer(request, self._chat)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        try:
            self._access.execution(request)
        except RequestError as error:
            return error_response(self._chat, error)
        return web.Response(body=models_body(self._model), content_type="application/json")

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return error_response(self._chat, RequestError(f"{request.method} {request.path}: no such path here", status=404, code="not_found"))
