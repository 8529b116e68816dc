"""Errors in the words of the Responses API, on which its clients act."""

import orjson

from gyre_hpc.gateway.protocols.base import RequestError

OVERFLOW = "context_length_exceeded"


def reworded(error: RequestError) -> RequestError:
    """Errors of the machine in the words of this protocol, on which clients act."""
    if error.code == OVERFLOW:
        counts = f" ({error.facts['tokens']} tokens, limit {error.facts['limit']})" if {"tokens", "limit"} <= error.facts.keys() else ""
        text = f"Your input exceeds the context window of this model. Please adjust your input and try again.{counts}"
        return RequestError(text, field="input", code=OVERFLOW)
    return error


def error_body(error: RequestError) -> bytes:
    """Body of an error response."""
    told = reworded(error)
    kind = "invalid_request_error" if told.status < 500 else "server_error"
    return orjson.dumps({"error": {"message": told.text, "type": kind, "param": told.field or None, "code": told.code}})
