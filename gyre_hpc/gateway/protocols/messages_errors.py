"""Errors in Anthropic's words: place, colon, reason; kinds by status; the wording on which harnesses compact."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from gyre_hpc.gateway.protocols.base import RequestError

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


class Misplaced(Exception):
    """Something is wrong at a place that is put together on the way up: histories have thousands of places and few errors."""

    def __init__(self, what: str, *place: str | int, code: str = "invalid_request") -> None:
        super().__init__(what)
        self.what, self.place, self.code = what, place, code

    def within(self, *place: str | int) -> "Misplaced":
        """The same error, seen from further out."""
        return Misplaced(self.what, *place, *self.place, code=self.code)

    def told(self) -> RequestError:
        return wrong(".".join(map(str, self.place)), self.what, self.code)


def each(read: Callable[[Any], None], entries: Iterable[Any]) -> None:
    """Read every entry, which must be an object; an error gets the entry's number."""
    place = -1
    try:
        for place, entry in enumerate(entries):  # noqa: B007
            if not isinstance(entry, dict):
                raise Misplaced("Input should be an object")
            read(entry)
    except Misplaced as error:
        raise error.within(place) from None


def wrong(where: str, what: str, code: str = "invalid_request") -> RequestError:
    return RequestError(f"{where}: {what}", field=where, code=code)


def missing(value: Any, kind: str) -> str:
    """Reason why `value` is not the `kind` it should be."""
    return "Field required" if value is None else f"Input should be {kind}"


def error_body(error: RequestError) -> bytes:
    """Body of an error."""
    text, facts = error.text, error.facts
    if error.code == "context_length_exceeded" and "tokens" in facts and "limit" in facts:
        text = f"prompt is too long: {facts['tokens']} tokens > {facts['limit']} maximum"
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return orjson.dumps({"type": "error", "error": {"type": kind, "message": text}, "request_id": None})
