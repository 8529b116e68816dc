"""Responses as JSON schemas: what is taken, what comes back."""

from gyre_hpc.gateway.openapi_shapes import (
    ANY_OBJECT,
    BOOLEAN,
    COUNT,
    FUNCTION_SCHEMA,
    INTEGER,
    NUMBER,
    STRING,
    TOKEN,
    any_of,
    given,
    list_of,
    nullable,
    one_of,
    refused,
    texts,
    told,
)

_NAME = STRING | {"minLength": 1}
_PARTS = ("input_text", "output_text", "text")
_ITEM = any_of(
    given(
        {"role": one_of("user", "system", "developer", "assistant"), "content": texts(*_PARTS)}, {"type": one_of("message"), "id": STRING}
    ),
    given(
        {"type": one_of("reasoning")},
        {
            "id": STRING,
            "summary": list_of(given({"type": one_of("summary_text"), "text": STRING})),
            "content": nullable(list_of(given({"type": one_of("reasoning_text"), "text": STRING}))),
            "encrypted_content": nullable(STRING) | {"description": "As this execution got it; anything else is refused."},
        },
    ),
    given(
        {"type": one_of("function_call"), "call_id": _NAME, "name": _NAME, "arguments": STRING},
        {"id": STRING, "namespace": nullable(STRING)},
    ),
    given({"type": one_of("custom_tool_call"), "call_id": _NAME, "name": _NAME, "input": STRING}, {"namespace": nullable(STRING)}),
    given({"type": one_of("function_call_output", "custom_tool_call_output"), "call_id": _NAME, "output": texts(*_PARTS)}),
)
_FUNCTION = given(
    {"type": one_of("function"), "name": _NAME}, {"description": nullable(STRING), "parameters": nullable(FUNCTION_SCHEMA)}
)  # fmt: skip
_CUSTOM = given({"type": one_of("custom"), "name": _NAME}, {"description": nullable(STRING), "format": nullable(ANY_OBJECT)})
_NAMESPACE = given({"type": one_of("namespace"), "name": _NAME, "tools": list_of(any_of(_FUNCTION, _CUSTOM))})
_RECORDED = nullable(NUMBER) | {"description": "Recorded; the configured sampling is used."}
REQUEST = given(
    {"input": any_of(STRING, list_of(_ITEM, minItems=1))},
    {
        "model": STRING,
        "instructions": nullable(STRING),
        "tools": nullable(list_of(any_of(_FUNCTION, _CUSTOM, _NAMESPACE), description="Hosted tools are refused.")),
        "tool_choice": refused("auto", "none"),
        "parallel_tool_calls": nullable(BOOLEAN) | {"description": "false is refused when there are tools."},
        "stream": nullable(BOOLEAN),
        "store": nullable(BOOLEAN) | {"description": "true by default."},
        "previous_response_id": nullable(STRING) | {"description": "A stored response of this execution, else 404."},
        "include": nullable(list_of(one_of("reasoning.encrypted_content", "message.output_text.logprobs"))),
        "max_output_tokens": nullable(COUNT),
        "temperature": _RECORDED,
        "top_p": _RECORDED,
        "reasoning": nullable(given({}, {"effort": nullable(STRING), "summary": nullable(STRING)})),
        "text": nullable(given({}, {"format": nullable(given({"type": one_of("text")})), "verbosity": nullable(STRING)})),
        "metadata": nullable({"type": "object", "additionalProperties": STRING}),
        "user": nullable(STRING),
        "safety_identifier": nullable(STRING),
        "prompt_cache_key": nullable(STRING),
        "truncation": refused("disabled"),
        "background": refused(False),
        "top_logprobs": refused(0),
        "conversation": refused(why="use previous_response_id"),
        "prompt": refused(why="nothing is stored but responses"),
        "max_tool_calls": refused(),
        "context_management": refused([]),
    },
)
_STATUS = one_of("completed", "incomplete")
_OUTPUT = any_of(
    told(
        {
            "type": one_of("reasoning"),
            "id": STRING,
            "summary": list_of(ANY_OBJECT, maxItems=0),
            "content": list_of(told({"type": one_of("reasoning_text"), "text": STRING})),
        },
        {"encrypted_content": STRING},
    ),
    told(
        {
            "type": one_of("message"),
            "id": STRING,
            "role": one_of("assistant"),
            "status": _STATUS,
            "content": list_of(
                told(
                    {
                        "type": one_of("output_text"),
                        "text": STRING,
                        "annotations": list_of(ANY_OBJECT, maxItems=0),
                        "logprobs": list_of(TOKEN),
                    }
                )
            ),
        }
    ),
    told(
        {"type": one_of("function_call"), "id": STRING, "call_id": STRING, "name": STRING, "arguments": STRING, "status": _STATUS},
        {"namespace": STRING},
    ),
    told(
        {"type": one_of("custom_tool_call"), "id": STRING, "call_id": STRING, "name": STRING, "input": STRING, "status": _STATUS},
        {"namespace": STRING},
    ),
)
_USAGE = told(
    {
        "input_tokens": INTEGER,
        "input_tokens_details": told({"cached_tokens": INTEGER}),
        "output_tokens": INTEGER,
        "output_tokens_details": told({"reasoning_tokens": INTEGER}),
        "total_tokens": INTEGER,
    }
)
RESPONSE = told(
    {
        "id": STRING,
        "object": one_of("response"),
        "created_at": INTEGER,
        "status": one_of("completed", "incomplete", "cancelled"),
        "background": one_of(False),
        "error": {"type": "null"},
        "incomplete_details": nullable(told({"reason": one_of("max_output_tokens")})),
        "instructions": nullable(STRING),
        "max_output_tokens": nullable(COUNT),
        "max_tool_calls": {"type": "null"},
        "model": STRING,
        "output": list_of(_OUTPUT),
        "parallel_tool_calls": BOOLEAN,
        "previous_response_id": nullable(STRING),
        "prompt_cache_key": nullable(STRING),
        "reasoning": told({"effort": nullable(STRING), "summary": nullable(STRING)}),
        "safety_identifier": nullable(STRING),
        "service_tier": one_of("default"),
        "store": BOOLEAN,
        "temperature": nullable(NUMBER),
        "text": told({"format": told({"type": one_of("text")}), "verbosity": STRING}),
        "tool_choice": one_of("auto", "none"),
        "tools": list_of(ANY_OBJECT),
        "top_logprobs": one_of(0),
        "top_p": nullable(NUMBER),
        "truncation": one_of("disabled"),
        "usage": nullable(_USAGE),
        "user": nullable(STRING),
        "metadata": {"type": "object", "additionalProperties": STRING},
    }
)
DELETED = told({"id": STRING, "object": one_of("response"), "deleted": one_of(True)})
