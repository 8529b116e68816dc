"""Errors in the words of the Responses API, on which its clients act. The machine speaks of calls, clients know responses."""

import re

import orjson

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.responses_ids import item_id

_CALL = re.compile(r"(?:train|eval|warm)-[0-9r-]+/\d+")


def error_body(error: RequestError) -> bytes:
    """Body of an error response."""
    told = reworded(error)
    kind = "invalid_request_error" if told.status < 500 else "server_error"
    return orjson.dumps({"error": {"message": told.text, "type": kind, "param": told.field or None, "code": told.code}})


def reworded(error: RequestError) -> RequestError:
    """The same error as OpenAI tells it."""
    call = _CALL.search(error.text)
    match error.code:
        case "context_length_exceeded":
            counts = f" ({error.facts['tokens']} tokens, limit {error.facts['limit']})" if {"tokens", "limit"} <= error.facts.keys() else ""
            text = f"Your input exceeds the context window of this model. Please adjust your input and try again.{counts}"
            return RequestError(text, field="input", code=error.code)
        case "invalid_messages":
            return RequestError(error.text.replace("messages", "input", 1), field="input", code=error.code)
        case "previous_response_not_found" if call is not None:
            return previous_not_found(item_id("resp", call[0]))
        case "not_found" if call is not None:
            return response_not_found(item_id("resp", call[0]))
        case "already_ended" if call is not None:
            text = f"Cannot cancel a completed response: '{item_id('resp', call[0])}' has its answer already."
            return RequestError(text, status=error.status, code=error.code)
        case "cancelled" if call is not None:
            return RequestError(f"Response '{item_id('resp', call[0])}' was cancelled.", status=error.status, code=error.code)
    return error


def response_not_found(id: str) -> RequestError:
    """For GET, DELETE and cancel."""
    # A path can hold bytes that are no text.
    shown = id[:120].encode("utf-8", "replace").decode()
    return RequestError(f"Response with id '{shown}' not found.", status=404, code="not_found")


def previous_not_found(id: str) -> RequestError:
    """For requests that go on from an answer there is not."""
    text = f"Previous response with id '{id[:120]}' not found."
    return RequestError(text, field="previous_response_id", status=404, code="previous_response_not_found")
