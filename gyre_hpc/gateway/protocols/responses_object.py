"""The Response object and its output items: one reasoning item, one message, then the tool calls, as far as there are any."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import ToolCall
from gyre_hpc.gateway.protocols.base import Finished, RequestError, TokenLogprob, Usage
from gyre_hpc.gateway.protocols.responses_body import LOGPROBS, REASONING
from gyre_hpc.gateway.protocols.responses_ids import Handles, item_id
from gyre_hpc.gateway.protocols.responses_tools import ToolTable, custom_input


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What is known of a response before there is an answer."""

    call: str
    created: int
    """Unix seconds."""
    model: str
    request: Mapping[str, Any]
    """Its request (`responses_body.repeated` of it is enough)."""
    previous: str
    """Call it goes on from; empty if from none."""


def response(
    given: Given, status: str, output: list[dict[str, Any]], usage: Usage | None = None, error: RequestError | None = None
) -> dict[str, Any]:
    """`status`: in_progress, completed, incomplete, failed or cancelled."""
    request = given.request
    reasoning, text = request.get("reasoning") or {}, request.get("text") or {}
    return {
        "id": item_id("resp", given.call),
        "object": "response",
        "created_at": given.created,
        "status": status,
        "background": False,
        "error": {"code": error.code, "message": error.text} if error is not None else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": given.model,
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls", True) is not False,
        "previous_response_id": item_id("resp", given.previous) if given.previous else None,
        "prompt_cache_key": request.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": request.get("safety_identifier"),
        "service_tier": "default",
        "store": request.get("store") is not False,
        "temperature": request.get("temperature"),
        "text": {"format": {"type": "text"}, "verbosity": text.get("verbosity") or "medium"},
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "top_logprobs": 0,
        "top_p": request.get("top_p"),
        "truncation": "disabled",
        "usage": _usage(usage) if usage is not None else None,
        "user": request.get("user"),
        "metadata": request.get("metadata") or {},
    }


class Items:
    """Makes the output items of one response."""

    def __init__(self, given: Given, handles: Handles) -> None:
        self._call, self._given, self._handles = given.call, given, handles
        self._tools: ToolTable | None = None

    def reasoning(self, text: str | None) -> dict[str, Any]:
        """None: it has only begun."""
        item: dict[str, Any] = {"type": "reasoning", "id": item_id("rs", self._call), "summary": []}
        item["content"] = [] if text is None else [{"type": "reasoning_text", "text": text}]
        if text is not None and REASONING in (self._given.request.get("include") or ()):
            item["encrypted_content"] = self._handles.mint(self._call)
        return item

    def message(self, text: str | None, status: str, logprobs: tuple[TokenLogprob, ...] = ()) -> dict[str, Any]:
        """None: it has only begun."""
        content = [] if text is None else [output_text(text, logprobs)]
        return {"type": "message", "id": item_id("msg", self._call), "status": status, "role": "assistant", "content": content}

    def tool_call(self, call: ToolCall, place: int, status: str = "completed") -> dict[str, Any]:
        """in_progress: without its arguments."""
        tool = self._table().wire(call.name)
        item: dict[str, Any] = {"call_id": call.id, "name": tool.name, "status": status}
        if tool.namespace:
            item["namespace"] = tool.namespace
        begun = status == "in_progress"
        if tool.is_custom:
            input = "" if begun else custom_input(call)
            return {"type": "custom_tool_call", "id": item_id("ctc", self._call, place), "input": input} | item
        arguments = "" if begun else call.arguments
        return {"type": "function_call", "id": item_id("fc", self._call, place), "arguments": arguments} | item

    def all(self, finished: Finished) -> list[dict[str, Any]]:
        """Output of the whole answer."""
        answer = finished.answer
        output = [self.reasoning(answer.reasoning)] if answer.reasoning else []
        if has_message(finished):
            logprobs = finished.logprobs if LOGPROBS in (self._given.request.get("include") or ()) else ()
            output.append(self.message(answer.content, status_of(finished), logprobs))
        return output + [self.tool_call(call, place) for place, call in enumerate(answer.tool_calls)]

    def _table(self) -> ToolTable:
        # Built late: most answers of long conversations call few tools, and requests without an answer need none.
        if self._tools is None:
            self._tools = ToolTable(self._given.request.get("tools") or ())
        return self._tools


def output_text(text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> dict[str, Any]:
    """A content part. Log-probs are those of all output tokens, marks and calls included: they are what was sampled."""
    told = [{"token": t.text, "bytes": list(t.raw), "logprob": t.logprob, "top_logprobs": []} for t in logprobs]
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": told}


def has_message(finished: Finished) -> bool:
    """An answer without text has no message, unless it would be empty altogether."""
    return bool(finished.answer.content) or not finished.answer.tool_calls


def status_of(finished: Finished) -> str:
    return "incomplete" if finished.finish == "length" else "completed"


def _usage(usage: Usage) -> dict[str, Any]:
    """Reasoning tokens are counted among the output tokens, not apart."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
