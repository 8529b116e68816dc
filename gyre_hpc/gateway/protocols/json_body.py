"""Body of a request -> JSON object. What is no JSON is refused; what JavaScript harnesses make of half an emoji is repaired.

A harness that cuts a tool's output in the middle of a surrogate pair sends a lone surrogate as an escape, which is JSON but
no Unicode text. Refusing it would end the harness at every later call, too; U+FFFD takes its place, as in any UTF-8 encoder.
"""

import json
from typing import Any

import orjson

from gyre_hpc.gateway.protocols.base import RequestError


def decode_object(body: bytes) -> dict[str, Any]:
    """Raises RequestError for what is not one JSON object."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _without_lone_surrogates(body, str(error))
    if not isinstance(value, dict):
        raise RequestError("body: give a JSON object", field="body", code="invalid_json")
    return value


def encoded(value: Any, *, sort_keys: bool = False) -> bytes:
    """JSON of a part of a request. Raises RequestError for what can be read but not written: too many levels."""
    try:
        # Some levels to spare: an answer may repeat this part inside of its own objects.
        return orjson.dumps([[[[value]]]], option=orjson.OPT_SORT_KEYS if sort_keys else 0)[4:-4]
    except orjson.JSONEncodeError as error:
        raise RequestError(f"body is nested too deeply: {error}", field="body", code="invalid_json") from None


def _without_lone_surrogates(body: bytes, why: str) -> Any:
    if b"\\ud" in body or b"\\uD" in body:
        try:
            text = json.dumps(json.loads(body), ensure_ascii=False)
            return orjson.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
        except (ValueError, RecursionError):
            pass
    raise RequestError(f"body is not JSON: {why}", field="body", code="invalid_json")
