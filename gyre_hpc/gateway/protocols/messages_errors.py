"""Errors in Anthropic's words: place, colon, reason; kinds by status; the wording on which harnesses compact."""

import orjson

from gyre_hpc.gateway.protocols.base import RequestError
from gyre_hpc.gateway.protocols.places import Misplaced

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def told(error: Misplaced) -> RequestError:
    """messages.3.content.0.type: ..."""
    return wrong(".".join(map(str, error.place)), error.what, error.code)


def wrong(where: str, what: str, code: str = "invalid_request") -> RequestError:
    return RequestError(f"{where}: {what}", field=where, code=code)


def error_body(error: RequestError) -> bytes:
    """Body of an error."""
    text, facts = error.text, error.facts
    if error.code == "context_length_exceeded" and "tokens" in facts and "limit" in facts:
        text = f"prompt is too long: {facts['tokens']} tokens > {facts['limit']} maximum"
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": text}, "request_id": None})
