"""Chat Completions as JSON schemas: what is taken, what comes back."""

from gyre_hpc.gateway.openapi_shapes import (
    BOOLEAN,
    COUNT,
    FUNCTION_SCHEMA,
    INTEGER,
    NUMBER,
    STOPS,
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

_CALL = given({"id": STRING, "function": given({"name": STRING}, {"arguments": nullable(STRING)})}, {"type": one_of("function")})
_MESSAGE = any_of(
    given({"role": one_of("system", "developer", "user"), "content": texts("text")}),
    given(
        {"role": one_of("assistant")},
        {"content": nullable(texts("text")), "reasoning_content": nullable(STRING), "tool_calls": nullable(list_of(_CALL))},
    ),
    given({"role": one_of("tool"), "content": nullable(texts("text")), "tool_call_id": STRING}),
)
_TOOL = given(
    {"function": given({"name": STRING | {"minLength": 1}}, {"description": nullable(STRING), "parameters": nullable(FUNCTION_SCHEMA)})},
    {"type": one_of("function")},
)
REQUEST = given(
    {"messages": list_of(_MESSAGE, minItems=1, description="A result answers a call that stands before it.")},
    {
        "model": STRING,
        "tools": nullable(list_of(_TOOL)),
        "stream": nullable(BOOLEAN),
        "stream_options": nullable(given({}, {"include_usage": nullable(BOOLEAN)})),
        "max_tokens": nullable(COUNT),
        "max_completion_tokens": nullable(COUNT),
        "stop": nullable(any_of(STRING, STOPS)),
        "logprobs": nullable(BOOLEAN),
        "tool_choice": refused("auto", "none"),
        "parallel_tool_calls": refused(True),
        "n": refused(1),
        "top_logprobs": refused(0),
        "response_format": refused({"type": "text"}),
        "logit_bias": refused({}),
        "functions": refused([]),
        "function_call": refused("none"),
        "modalities": refused(["text"]),
        "audio": refused(),
        "prediction": refused(),
        "web_search_options": refused(),
    }
    | {
        name: nullable(NUMBER) | {"description": "Recorded; the configured sampling is used."}
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
    },
)
_USAGE = told(
    {
        "prompt_tokens": INTEGER,
        "completion_tokens": INTEGER,
        "total_tokens": INTEGER,
        "prompt_tokens_details": told({"cached_tokens": INTEGER}),
    }
)
_ANSWER = told(
    {"role": one_of("assistant"), "content": nullable(STRING)},
    {
        "reasoning_content": STRING,
        "tool_calls": list_of(
            told({"id": STRING, "type": one_of("function"), "function": told({"name": STRING, "arguments": STRING})})
        ),
    },
)  # fmt: skip
RESPONSE = told(
    {
        "id": STRING,
        "object": one_of("chat.completion"),
        "created": INTEGER,
        "model": STRING,
        "choices": list_of(
            told(
                {
                    "index": one_of(0),
                    "message": _ANSWER,
                    "logprobs": nullable(told({"content": list_of(TOKEN), "refusal": {"type": "null"}})),
                    "finish_reason": one_of("stop", "length", "tool_calls"),
                }
            ),
            minItems=1,
            maxItems=1,
        ),
        "usage": _USAGE,
    }
)
