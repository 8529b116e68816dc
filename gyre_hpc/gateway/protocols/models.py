"""GET /v1/models and /v1/models/{id} in the shapes of OpenAI and Anthropic."""

from typing import Any

import orjson

_LONG_AGO = "1970-01-01T00:00:00Z"
"""Anthropic's clients want a date and allow an epoch value for one that is unknown."""


def models_body(model: str, *, anthropic: bool) -> bytes:
    """The list of the one model there is."""
    entry = _entry(model, anthropic)
    if anthropic:
        return orjson.dumps({"data": [entry], "has_more": False, "first_id": model, "last_id": model})
    return orjson.dumps({"object": "list", "data": [entry]})


def model_body(model: str, *, anthropic: bool) -> bytes:
    """One model."""
    return orjson.dumps(_entry(model, anthropic))


def _entry(model: str, anthropic: bool) -> dict[str, Any]:
    model = model.encode("utf-8", "replace").decode()
    if anthropic:
        return {"type": "model", "id": model, "display_name": model, "created_at": _LONG_AGO, "lifecycle": "active"}
    return {"id": model, "object": "model", "created": 0, "owned_by": "gyre_hpc"}
