"""OpenAI Responses, streaming and not: the protocol of Codex.

What we cannot honour is refused by the name of its field, never ignored in silence; what has no effect on the answer
(user, metadata, ...) is accepted. Sampling parameters are recorded; the configured ones are used.
Context overflow is a plain 400, streamed or not: Codex 0.171 knows it by its code, in a body as well as in `response.failed`.
"""

import orjson

from gyre_hpc.chat.base import Message
from gyre_hpc.gateway.protocols.base import ChatRequest, Finished, Head, Protocol, RequestError
from gyre_hpc.gateway.protocols.chat_messages import told
from gyre_hpc.gateway.protocols.places import Misplaced
from gyre_hpc.gateway.protocols.responses_body import LOGPROBS, Body, decode, echo, echoed, identity
from gyre_hpc.gateway.protocols.responses_errors import error_body, previous_not_found
from gyre_hpc.gateway.protocols.responses_ids import Handles, call_of
from gyre_hpc.gateway.protocols.responses_items import Turns
from gyre_hpc.gateway.protocols.responses_object import Given, Items, response, status_of
from gyre_hpc.gateway.protocols.responses_stream import ResponseStream
from gyre_hpc.gateway.protocols.responses_tools import ToolTable


class Responses(Protocol):
    """POST /v1/responses."""

    name = "responses"

    def __init__(self, run_token: str) -> None:
        self._handles = Handles(run_token)

    def parse(self, body: bytes) -> ChatRequest:
        return self.parse_for("", body)

    def parse_for(self, execution: str, body: bytes) -> ChatRequest:
        raw, asked = decode(body)
        tools = ToolTable(asked.tools or ())
        return ChatRequest(
            body=raw,
            identity=identity(raw),
            messages=self._messages(execution, asked, tools),
            tools=() if raw.get("tool_choice") == "none" else tools.functions(),
            requested={name: value for name in ("temperature", "top_p") if (value := getattr(asked, name)) is not None},
            max_new_tokens=asked.max_output_tokens or 0,
            stream=bool(asked.stream),
            model=asked.model,
            logprobs=LOGPROBS in (asked.include or ()),
            store=asked.store is not False,
            previous=previous_call(asked.previous_response_id, execution) if asked.previous_response_id else "",
            instructed=bool(asked.instructions),
            echo=echo(raw) if asked.store is not False else (),
        )

    def whole(self, head: Head, asked: ChatRequest, finished: Finished) -> bytes:
        given = self._given(head, asked, finished)
        return orjson.dumps(response(given, status_of(finished), Items(given, self._handles).all(finished), finished.usage))

    def stream(self, head: Head, asked: ChatRequest) -> ResponseStream:
        return ResponseStream(self._given(head, asked), self._handles)

    def error(self, error: RequestError) -> bytes:
        return error_body(error)

    def _messages(self, execution: str, asked: Body, tools: ToolTable) -> tuple[Message, ...]:
        turns = Turns(tools, self._handles, execution, goes_on=bool(asked.previous_response_id))
        if isinstance(asked.input, str):
            turns.read([{"role": "user", "content": asked.input}])
        else:
            try:
                turns.read(asked.input)
            except Misplaced as error:
                raise told(error.within("input")) from None
        messages = turns.messages()
        if not messages:
            raise RequestError("input=[]: give at least one item", field="input")
        return (Message(role="system", content=asked.instructions), *messages) if asked.instructions else messages

    def _given(self, head: Head, asked: ChatRequest, finished: Finished | None = None) -> Given:
        """A stored answer repeats its own request, not the one that fetches it."""
        request = echoed(finished.echo) if finished is not None and finished.echo else asked.body
        return Given(
            call=head.call,
            created=(finished.created if finished is not None else 0) or head.created,
            model=request.get("model") or head.model,
            request=request,
            previous=(finished.previous if finished is not None else "") or asked.previous,
        )


def previous_call(id: str, execution: str) -> str:
    """The call of a response this execution got. Raises RequestError 404 in OpenAI's words."""
    call = call_of(id, "resp")
    if not call.startswith(f"{execution}/"):
        raise previous_not_found(id)
    return call
