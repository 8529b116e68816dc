"""The harness surface as an OpenAPI document: `GET /e/{execution}/openapi.json`, committed as docs/openapi.json.

`python -m gyre_hpc.gateway.openapi > docs/openapi.json` writes that copy.
"""

from typing import Any

import orjson
from aiohttp import web

from gyre_hpc import __version__
from gyre_hpc.gateway import openapi_chat, openapi_messages, openapi_responses
from gyre_hpc.gateway.access import Access
from gyre_hpc.gateway.model_calls import error_response
from gyre_hpc.gateway.openapi_shapes import INTEGER, OPENAI_ERROR, STRING, Schema, any_of, list_of, one_of, told
from gyre_hpc.gateway.protocols.base import Protocol, RequestError

_ABOUT = """What harnesses see of the gateway. Every path belongs to one execution, and so does the key.

Requests may hold fields that are not described here; they have no effect. What would change the answer and cannot be honoured is
refused by its name. Answers that are not streamed may begin with spaces, which keep the connection alive."""
_STATUSES = {
    400: "wrong in itself: `param` or the text names the field",
    401: "no key of this execution",
    404: "unknown execution, path or response, or an execution that has ended",
    408: "the body did not come in time (gateway.body_deadline_s)",
    413: "body larger than gateway.max_body_bytes",
    429: "more calls at once than gateway.max_calls",
    503: "no answer within the call's deadline",
}
_OF_CALLS = (400, 401, 404, 408, 413, 429, 503)
_ERRORS = {"openai": "OpenAIError", "anthropic": "AnthropicError", "either": "Error"}
_EXECUTION = {
    "name": "execution",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": r"^(train|eval|warm)-[0-9]{1,9}-[0-9]{1,9}-[0-9]{1,9}(-r[0-9]{1,9})?$"},
}
_EVENT = told({"data": STRING}, {"event": STRING})
_MODEL = told({"id": STRING, "object": one_of("model"), "created": INTEGER, "owned_by": STRING})
_ANTHROPIC_MODEL = told(
    {"type": one_of("model"), "id": STRING, "display_name": STRING, "created_at": STRING, "lifecycle": one_of("active")}
)  # fmt: skip
_MODELS = any_of(
    told({"object": one_of("list"), "data": list_of(_MODEL)}),
    told({"data": list_of(_ANTHROPIC_MODEL), "has_more": one_of(False), "first_id": STRING, "last_id": STRING}),
)
_SCHEMAS: dict[str, Schema] = {
    "ChatRequest": openapi_chat.REQUEST,
    "ChatCompletion": openapi_chat.RESPONSE,
    "ResponseRequest": openapi_responses.REQUEST,
    "Response": openapi_responses.RESPONSE,
    "ResponseDeleted": openapi_responses.DELETED,
    "MessageRequest": openapi_messages.REQUEST,
    "Message": openapi_messages.RESPONSE,
    "CountRequest": openapi_messages.COUNT_REQUEST,
    "Count": openapi_messages.COUNT_RESPONSE,
    "Models": _MODELS,
    "Model": any_of(_MODEL, _ANTHROPIC_MODEL),
    "Nothing": told({}),
    "Document": {"type": "object"},
    "OpenAIError": OPENAI_ERROR,
    "AnthropicError": openapi_messages.ERROR,
    "Error": any_of(OPENAI_ERROR, openapi_messages.ERROR),
}

_SUMMARIES = {
    "createChatCompletion": "One answer to a conversation, in OpenAI's Chat Completions; streamed if asked for",
    "createResponse": "One answer to a conversation, in OpenAI's Responses; goes on from a stored one with previous_response_id",
    "getResponse": "A stored answer once more, also after a restart of the shard",
    "deleteResponse": "Forget a stored answer; conversations that went on from it are not touched",
    "cancelResponse": "Give up an answer that is not complete yet; its tokens stay recorded",
    "createMessage": "One answer to a conversation, in Anthropic's Messages; streamed if asked for",
    "countTokens": "Tokens of a conversation rendered from scratch",
    "listModels": "The one model there is; in Anthropic's shape with the header anthropic-version, else in OpenAI's",
    "getModel": "Every name is a name of the one model",
    "hello": "Whether somebody is here; needs no key",
    "openapi": "This document",
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "gyre_hpc gateway", "version": __version__, "description": _ABOUT},
        "security": [{"bearer": []}, {"x_api_key": []}],
        "paths": {f"/e/{{execution}}{path}": {"parameters": [_EXECUTION]} | item for path, item in _paths().items()},
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x_api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": _SCHEMAS,
        },
    }


def _paths() -> dict[str, Any]:
    stream = {
        "name": "stream",
        "in": "query",
        "schema": one_of("false"),
        "description": "A stored response is fetched whole; other values are refused.",
    }
    one = {"parameters": [_EXECUTION, _text_parameter("response")]}
    return {
        "/v1/chat/completions": {"post": _call("createChatCompletion", "ChatRequest", "ChatCompletion", "openai")},
        "/v1/responses": {"post": _call("createResponse", "ResponseRequest", "Response", "openai")},
        "/v1/responses/{response}": one
        | {
            "get": _asked("getResponse", "Response", "openai", (400, 401, 404)) | {"parameters": [stream]},
            "delete": _asked("deleteResponse", "ResponseDeleted", "openai", (401, 404)),
        },
        "/v1/responses/{response}/cancel": one | {"post": _asked("cancelResponse", "Response", "openai", (400, 401, 404))},
        "/v1/messages": {"post": _call("createMessage", "MessageRequest", "Message", "anthropic")},
        "/v1/messages/count_tokens": {
            "post": _asked("countTokens", "Count", "anthropic", (400, 401, 404, 408, 413)) | {"requestBody": _body("CountRequest")}
        },
        "/v1/models": {"get": _asked("listModels", "Models", "either", (401, 404))},
        "/v1/models/{model}": {
            "parameters": [_EXECUTION, _text_parameter("model")],
            "get": _asked("getModel", "Model", "either", (401, 404)),
        },
        "/api/hello": {"get": _asked("hello", "Nothing", "either", ()) | {"security": []}},
        "/openapi.json": {"get": _asked("openapi", "Document", "openai", (401, 404))},
    }


def _call(name: str, body: str, answer: str, words: str) -> dict[str, Any]:
    """A request for one answer, streamed or not."""
    operation = _asked(name, answer, words, _OF_CALLS)
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": _EVENT}
    return operation | {"requestBody": _body(body)}


def _asked(name: str, answer: str, words: str, statuses: tuple[int, ...]) -> dict[str, Any]:
    responses = {"200": _content(answer, "done")}
    responses |= {str(status): _content(_ERRORS[words], _STATUSES[status]) for status in statuses}
    return {"operationId": name, "summary": _SUMMARIES[name], "responses": responses}


def _content(name: str, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(name)}}}


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": _ref(name)}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _text_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def document_bytes() -> bytes:
    """As it is served and committed."""
    return orjson.dumps(document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class ServedDocument:
    """The handler of openapi.json."""

    def __init__(self, access: Access, protocol: Protocol) -> None:
        """`protocol`: in whose words errors are told."""
        self._access, self._protocol, self._body = access, protocol, document_bytes()

    def add_to(self, app: web.Application, base: str) -> None:
        app.router.add_get(base + "/openapi.json", self._get)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        try:
            self._access.execution(request)
        except RequestError as error:
            return error_response(self._protocol, error)
        return web.Response(body=self._body, content_type="application/json")


if __name__ == "__main__":
    print(document_bytes().decode(), end="")
