"""Anthropic Messages as JSON schemas: what is taken, what comes back."""

from gyre_hpc.gateway.openapi_shapes import (
    ANY_OBJECT,
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    STOPS,
    STRING,
    any_of,
    given,
    list_of,
    nullable,
    one_of,
    refused,
    told,
)

_TEXT = given({"type": one_of("text"), "text": STRING})
_TEXTS = any_of(STRING, list_of(_TEXT))
_MESSAGE = any_of(
    given(
        {
            "role": one_of("user"),
            "content": any_of(
                STRING,
                list_of(
                    any_of(_TEXT, given({"type": one_of("tool_result"), "tool_use_id": STRING}, {"content": _TEXTS, "is_error": BOOLEAN}))
                ),
            ),
        }
    ),
    given(
        {
            "role": one_of("assistant"),
            "content": any_of(
                STRING,
                list_of(
                    any_of(
                        _TEXT,
                        given({"type": one_of("tool_use"), "id": STRING, "name": STRING, "input": ANY_OBJECT}),
                        given({"type": one_of("thinking"), "thinking": STRING}, {"signature": STRING}),
                    )
                ),
            ),
        }
    ),
    given({"role": one_of("system"), "content": _TEXTS}),
)
_SCHEMA = {"type": "object", "properties": {"properties": nullable(ANY_OBJECT)}}
_TOOL = given(
    {"name": STRING | {"minLength": 1}, "input_schema": _SCHEMA}, {"type": one_of(None, "custom"), "description": nullable(STRING)}
)
_RECORDED = nullable(NUMBER) | {"description": "Recorded; the configured sampling is used."}
_OPTIONAL = {
    "model": STRING,
    "system": nullable(_TEXTS),
    "tools": nullable(list_of(_TOOL, description="Tools that run on the server are refused.")),
    "tool_choice": nullable(given({"type": one_of("auto", "none")}, {"disable_parallel_tool_use": refused(False)})),
    "stop_sequences": nullable(STOPS),
    "thinking": nullable(given({"type": one_of("enabled", "disabled", "adaptive", "between_tools")}, {"display": nullable(STRING)})),
    "output_config": nullable(given({}, {"format": refused(why="answers cannot be held to a schema")})),
    "temperature": _RECORDED,
    "top_p": _RECORDED,
    "top_k": nullable(INTEGER),
    "stream": nullable(BOOLEAN),
    "mcp_servers": refused([]),
    "container": refused(""),
    "fallbacks": refused([]),
    "thread": refused(""),
    "compaction": refused({}),
    "output_format": refused({}),
}
_MESSAGES = list_of(_MESSAGE, minItems=1, description="Ends with a turn of the user or the system; a result answers a call before it.")
REQUEST = given({"max_tokens": COUNT, "messages": _MESSAGES}, _OPTIONAL)
COUNT_REQUEST = given({"messages": _MESSAGES}, {"max_tokens": nullable(COUNT)} | _OPTIONAL)
RESPONSE = told(
    {
        "id": STRING,
        "type": one_of("message"),
        "role": one_of("assistant"),
        "model": STRING,
        "content": list_of(
            any_of(
                told({"type": one_of("text"), "text": STRING}),
                told({"type": one_of("thinking"), "thinking": STRING, "signature": STRING}),
                told({"type": one_of("tool_use"), "id": STRING, "name": STRING, "input": ANY_OBJECT}),
            )
        ),
        "stop_reason": one_of("end_turn", "max_tokens", "tool_use", "stop_sequence"),
        "stop_sequence": nullable(STRING),
        "usage": told(
            {
                "input_tokens": INTEGER,
                "cache_creation_input_tokens": INTEGER,
                "cache_read_input_tokens": INTEGER,
                "output_tokens": INTEGER,
            }
        ),
    }
)
COUNT_RESPONSE = told({"input_tokens": INTEGER})
ERROR = told(
    {
        "type": one_of("error"),
        "error": told({"type": STRING, "message": STRING}),
        "request_id": {"type": "null"},
    }
)
