"""What harnesses ask besides an answer: which models there are, how long a prompt is, whether anybody is there.

Every model name is answered by the policy, so every name is one of its models. The shape of an answer is that of the
client: Anthropic's clients name a version of their API in a header.
"""

import orjson
from aiohttp import web

from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.bodies import Bodies
from gyre_hpc.gateway.model_calls import error_response
from gyre_hpc.gateway.protocols.base import Protocol, RequestError
from gyre_hpc.gateway.protocols.chat_completions import ChatCompletions
from gyre_hpc.gateway.protocols.messages import Messages
from gyre_hpc.gateway.protocols.models import model_body, models_body
from gyre_hpc.gateway.rendering import Rendering
from gyre_hpc.harnesses.base import Harness


class Inquiries:
    """Handlers that never reach the machine."""

    def __init__(self, *, access: Access, bodies: Bodies, model: str, harness: Harness, rendering: Rendering) -> None:
        self._access, self._bodies, self._model, self._harness, self._rendering = access, bodies, model, harness, rendering
        self._chat, self._messages = ChatCompletions(), Messages()

    def add_to(self, app: web.Application, base: str) -> None:
        app.router.add_get(base + "/v1/models", self._models)
        app.router.add_get(base + r"/v1/models/{model:[\s\S]+}", self._one_model)
        app.router.add_post(base + "/v1/messages/count_tokens", self._count)
        app.router.add_get(base + "/api/hello", self._hello)

    async def unknown(self, request: web.Request) -> web.StreamResponse:
        """Any other path below an execution, and any other method."""
        error = RequestError(f"{request.method} {request.path}: no such path here", status=404, code="not_found")
        return error_response(self._spoken(request), error)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return self._about_models(request, models_body(self._model, anthropic=_is_anthropic(request)))

    async def _one_model(self, request: web.Request) -> web.StreamResponse:
        return self._about_models(request, model_body(request.match_info["model"], anthropic=_is_anthropic(request)))

    def _about_models(self, request: web.Request, body: bytes) -> web.Response:
        try:
            self._access.execution(request)
        except RequestError as error:
            return error_response(self._spoken(request), error)
        return web.Response(body=body, content_type="application/json")

    async def _count(self, request: web.Request) -> web.StreamResponse:
        try:
            self._access.execution(request)
            asked = self._messages.parse_count(await self._bodies.read(request))
            try:
                num_tokens = await self._rendering.count(self._harness.clean(asked.messages), asked.tools)
            except Exception as error:  # noqa: BLE001  (as with calls: what the format raises, it does not take)
                raise RequestError(f"messages: cannot be rendered: {error}", field="messages", code="invalid_messages") from None
        except RequestError as error:
            return error_response(self._messages, error)
        return web.Response(body=orjson.dumps({"input_tokens": num_tokens}), content_type="application/json")

    async def _hello(self, request: web.Request) -> web.StreamResponse:
        """Claude Code asks this before it begins; it tells nothing and needs no key."""
        return web.Response(body=b"{}", content_type="application/json")

    def _spoken(self, request: web.Request) -> Protocol:
        is_messages = _is_anthropic(request) or request.path.partition("/v1/")[2].startswith("messages")
        return self._messages if is_messages else self._chat


def _is_anthropic(request: web.Request) -> bool:
    return "anthropic-version" in request.headers
