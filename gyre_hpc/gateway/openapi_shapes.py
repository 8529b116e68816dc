"""Words for JSON schemas, and what every protocol shares. Answers are closed objects: a field nobody described is an error."""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
STOPS: Schema = {"type": "array", "items": STRING, "maxItems": 32}
FUNCTION_SCHEMA: Schema = {"type": "object", "properties": {"properties": ANY_OBJECT}}
"""A JSON schema of an object, as tools have it."""


def one_of(*values: Any) -> Schema:
    """These values and no others."""
    return {"enum": list(values)}


def refused(*allowed: Any, why: str = "not supported") -> Schema:
    """A field that may be absent, null or one of these values; everything else is refused by its name."""
    return {"enum": [None, *allowed], "description": f"Other values are refused: {why}."}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": schema} | more


def any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def given(required: dict[str, Schema], optional: dict[str, Schema] | None = None, **more: Any) -> Schema:
    """An object of a request. Fields not named here have no effect."""
    return {"type": "object", "properties": required | (optional or {}), "required": list(required)} | more


def told(fields: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object of an answer."""
    return given(fields, optional, additionalProperties=False)


def texts(*kinds: str) -> Schema:
    """A string, or parts that are text; images, audio and files are refused."""
    return any_of(STRING, list_of(given({"type": one_of(*kinds), "text": STRING})))


TOKEN = told({"token": STRING, "bytes": list_of(INTEGER), "logprob": NUMBER, "top_logprobs": list_of(ANY_OBJECT, maxItems=0)})
OPENAI_ERROR = told(
    {
        "error": told(
            {
                "message": STRING,
                "type": one_of("invalid_request_error", "server_error"),
                "param": nullable(STRING),
                "code": nullable(STRING),
            }
        )
    }
)
