"""Requests about a response given before: fetch it again, delete it, give it up. The machine decides; here are only the words."""

import orjson
from aiohttp import web

from gyre_hpc.clock import unix_s
from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.model_calls import ModelCalls, error_response
from gyre_hpc.gateway.protocols.base import ChatRequest, RequestError
from gyre_hpc.gateway.protocols.responses import Responses
from gyre_hpc.gateway.protocols.responses_errors import response_not_found
from gyre_hpc.gateway.protocols.responses_ids import call_of, item_id
from gyre_hpc.gateway.protocols.responses_object import Given, response
from gyre_hpc.machines.call.actions import Cancel, Forget, Retrieve


class StoredAnswers:
    """Handlers of /v1/responses/{response}."""

    def __init__(self, access: Access, calls: ModelCalls, protocol: Responses) -> None:
        self._access, self._calls, self._protocol = access, calls, protocol

    def add_to(self, app: web.Application, base: str) -> None:
        one = base + "/v1/responses/{response}"
        app.router.add_get(one, self._retrieve, allow_head=False)
        app.router.add_delete(one, self._forget)
        app.router.add_post(one + "/cancel", self._cancel)

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        for field in ("stream", "starting_after"):
            if request.query.get(field, "false").lower() != "false":
                error = RequestError(f"{field}: not supported here; fetch the whole response", field=field, code="unsupported_value")
                return error_response(self._protocol, error)
        return await self._ask(request, Retrieve, b"")

    async def _forget(self, request: web.Request) -> web.StreamResponse:
        done = {"id": item_id("resp", _call(request)), "object": "response", "deleted": True}
        return await self._ask(request, Forget, orjson.dumps(done))

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        given = Given(call=_call(request), created=int(unix_s()), model="", request={}, previous="")
        return await self._ask(request, Cancel, orjson.dumps(response(given, "cancelled", [])))

    async def _ask(self, request: web.Request, kind: type[Retrieve | Forget | Cancel], done: bytes) -> web.StreamResponse:
        """`done`: body that says so."""
        asked = ChatRequest(
            body={}, identity=b"", messages=(), tools=(), requested={}, max_new_tokens=0, stream=False, model="", logprobs=True, echo=(done,)
        )  # fmt: skip
        try:
            execution, call = self._access.execution(request), _call(request)
            if not call.startswith(f"{execution}/"):
                raise response_not_found(request.match_info["response"])
            return await self._calls.about_stored(request, self._protocol, asked, call, kind)
        except RequestError as error:
            return error_response(self._protocol, error)


def _call(request: web.Request) -> str:
    """Empty when the id is none of ours."""
    return call_of(request.match_info["response"], "resp")
