"""Answers in the notation of Anthropic Messages: blocks, usage, stop reasons."""

from typing import Any

import orjson

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, Usage
from gyre_hpc.gateway.protocols.messages_thinking import sign
from gyre_hpc.gateway.protocols.messages_turns import UNPARSED

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def message(head: Head, content: list[dict[str, Any]], usage: dict[str, Any], stop: dict[str, Any]) -> dict[str, Any]:
    """A Message object; `stop`: stop_reason and stop_sequence."""
    id = f"msg_{head.call.replace('/', '-')}"
    return {"id": id, "type": "message", "role": "assistant", "model": head.model, "content": content} | stop | {"usage": usage}


def blocks(head: Head, asked: ChatRequest, finished: Finished) -> list[dict[str, Any]]:
    """All of an answer."""
    answer = finished.answer
    made: list[dict[str, Any]] = []
    if answer.reasoning:
        made.append(thinking(head.call, answer.reasoning, shows_thinking(asked)))
    if answer.content:
        made.append({"type": "text", "text": answer.content})
    made += [tool_use(call) | {"input": orjson.Fragment(input_text(call.arguments))} for call in answer.tool_calls]
    return made


def thinking(call: str, reasoning: str, shown: bool) -> dict[str, Any]:
    return {"type": "thinking", "thinking": reasoning if shown else "", "signature": sign(call, reasoning, shown=shown)}


def tool_use(call: ToolCall) -> dict[str, Any]:
    """A tool_use block whose input is still to come."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def shows_thinking(asked: ChatRequest) -> bool:
    config = asked.body.get("thinking")
    return not isinstance(config, dict) or config.get("display") != "omitted"


def stop(finished: Finished | None) -> dict[str, Any]:
    """stop_reason and stop_sequence; both null before the end."""
    if finished is None:
        return {"stop_reason": None, "stop_sequence": None}
    if finished.finish == "stop" and finished.answer.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.answer.stopped_by}
    return {"stop_reason": _STOP_REASONS[finished.finish], "stop_sequence": None}


def usage(counts: Usage | None) -> dict[str, Any]:
    """input_tokens are those that were computed; the cached ones are told apart. Zeros before the end."""
    counts = counts or Usage(prompt_tokens=0, completion_tokens=0)
    return {
        "input_tokens": counts.prompt_tokens - counts.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached_tokens,
        "output_tokens": counts.completion_tokens,
    }


def input_text(arguments: str) -> str:
    """A tool's input as JSON text: the model's own, if it is an object.

    What is none is handed over as Claude Code keeps it (tried with 2.1.220 and 2.1.332: the agent reads that its input is no
    JSON, and the raw text comes back); the official clients raise ValueError on anything that is no JSON.
    """
    try:
        if not arguments or isinstance(orjson.loads(arguments), dict):
            return arguments or "{}"
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({UNPARSED: {"raw": arguments, "len": len(arguments)}}).decode()
