"""System prompt and messages of Anthropic Messages -> turns.

What a harness may write in more than one way is one turn here: a string and its one text block, with and without `cache_control`.
Several text blocks of a user, a system turn or a tool's result are joined by a newline; those of an assistant by nothing,
because they are one text that was cut into blocks. Results of tools become turns of their own, before the text beside them.
"""

from typing import Any

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.json_body import encoded
from gyre_hpc.gateway.protocols.messages_thinking import carried
from gyre_hpc.gateway.protocols.messages_tools import Tools
from gyre_hpc.gateway.protocols.places import Misplaced, each, missing, string

UNPARSED = "__unparsedToolInput"
"""Key under which harnesses keep arguments that are no JSON object: {"raw": text, "len": characters}."""
_UNEXPECTED = (
    "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must have a corresponding `tool_use` block"
    " in a previous message."
)


def to_turns(system: Any, messages: Any, tools: Tools) -> tuple[Message, ...]:
    """Raises Misplaced."""
    if not isinstance(messages, list):
        raise Misplaced(missing(messages, "a valid list"), "messages")
    if not messages:
        raise Misplaced("at least one message is required", "messages")
    reading = _Reading(tools)
    if system:
        reading.system(system)
    try:
        each(reading.message, messages)
    except Misplaced as error:
        raise error.within("messages") from None
    if messages[-1]["role"] == "assistant":
        raise Misplaced("assistant message prefill is not supported here; the conversation must end with a user message", "messages")
    return tuple(reading.turns)


class _Reading:
    """One walk over the messages."""

    def __init__(self, tools: Tools) -> None:
        self.turns: list[Message] = []
        self._tools = tools
        self._called: dict[str, str] = {}
        """Call ids so far -> tool."""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        """What the blocks of the present message or result have given."""

    def system(self, content: Any) -> None:
        try:
            self.turns.append(Message(role="system", content=self._text(content)))
        except Misplaced as error:
            raise error.within("system") from None

    def message(self, message: dict[str, Any]) -> None:
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise Misplaced(f"Input should be 'user', 'assistant' or 'system', not {str(role)[:40]!r}", "role")
        if isinstance(content, str):
            self.turns.append(Message(role=role, content=content))
            return
        try:
            if not isinstance(content, list):
                raise Misplaced(missing(content, "a string or a list of blocks"))
            if role == "user":
                self._user(content)
            elif role == "assistant":
                self._assistant(content)
            else:
                self.turns.append(Message(role=role, content=self._text(content)))
        except Misplaced as error:
            raise error.within("content") from None

    def _assistant(self, blocks: list[Any]) -> None:
        self._texts, self._thoughts, self._calls = [], [], []
        each(self._assistant_block, blocks)
        content, reasoning = "".join(self._texts), "".join(self._thoughts)
        self.turns.append(Message(role="assistant", content=content, tool_calls=tuple(self._calls), reasoning=reasoning))

    def _assistant_block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self._texts.append(string(block, "text"))
        elif kind == "tool_use":
            self._calls.append(self._call(block))
        elif kind == "thinking":
            self._thoughts.append(string(block, "thinking") or carried(string(block, "signature") if block.get("signature") else ""))
        elif kind == "redacted_thinking":
            self._thoughts.append(carried(string(block, "data")))
        else:
            raise _unknown(kind)

    def _call(self, block: dict[str, Any]) -> ToolCall:
        id, name, arguments = string(block, "id"), string(block, "name"), block.get("input")
        if not isinstance(arguments, dict):
            raise Misplaced(missing(arguments, "an object"), "input")
        if self._calls and any(call.id == id for call in self._calls):
            raise Misplaced("`tool_use` ids must be unique", "id")
        self._called[id] = name
        return ToolCall(id=id, name=name, arguments=_arguments(arguments))

    def _user(self, blocks: list[Any]) -> None:
        texts: list[str] = []
        self._texts = texts
        each(self._user_block, blocks)
        if texts or not blocks:
            self.turns.append(Message(role="user", content="\n".join(texts)))

    def _user_block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "tool_result":
            self._result(block)
        elif kind == "text":
            self._texts.append(string(block, "text"))
        else:
            raise _unknown(kind)

    def _result(self, block: dict[str, Any]) -> None:
        id, text = string(block, "tool_use_id"), block.get("content")
        name = self._called.get(id)
        if name is None:
            raise Misplaced(_UNEXPECTED.format(id[:80]))
        if not isinstance(text, str):
            try:
                text = "" if text is None else self._text(text)
            except Misplaced as error:
                raise error.within("content") from None
        if block.get("is_error"):
            # Templates know no failed results; plain words say it to the model.
            text = f"Error: {text}"
        self.turns.append(Message(role="tool", content=text, tool_call_id=id, name=name))

    def _text(self, content: Any) -> str:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise Misplaced(missing(content, "a string or a list of blocks"))
        outside, self._texts = self._texts, []
        each(self._text_block, content)
        texts, self._texts = self._texts, outside
        return "\n".join(texts)

    def _text_block(self, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind == "text":
            self._texts.append(string(block, "text"))
        elif kind == "tool_reference":
            self._texts.append(self._tools.reference(block))
        elif kind in ("tool_addition", "tool_removal"):
            self._texts.append(self._tools.change(block))
        else:
            raise _unknown(kind)


def _arguments(value: dict[str, Any]) -> str:
    """JSON text of a tool's input; arguments that never were an object come back as they were."""
    if len(value) == 1 and UNPARSED in value:
        unparsed = value[UNPARSED]
        if isinstance(unparsed, dict) and isinstance(unparsed.get("raw"), str):
            return str(unparsed["raw"])
    return encoded(value).decode()


def _unknown(kind: Any) -> Misplaced:
    return Misplaced(f"blocks of type {str(kind)[:40]!r} are not supported here", "type", code="unsupported_content")
