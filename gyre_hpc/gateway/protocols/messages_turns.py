"""System prompt and messages of Anthropic Messages -> turns.

What a harness may write in more than one way is one turn here: a string and its one text block, with and without `cache_control`.
Several text blocks of a user, a system turn or a tool's result are joined by a newline; those of an assistant by nothing,
because they are one text that was cut into blocks. Results of tools become turns of their own, before the text beside them.
"""

from typing import Any

import orjson

from gyre_hpc.chat.base import Message, ToolCall
from gyre_hpc.gateway.protocols.messages_thinking import carried
from gyre_hpc.gateway.protocols.messages_tools import Tools, wrong

UNPARSED = "__unparsedToolInput"
"""Key under which harnesses keep arguments that are no JSON object: {"raw": text, "len": characters}."""
_ROLES = ("user", "assistant", "system")
_CHANGES = ("tool_addition", "tool_removal")


def to_turns(system: Any, messages: Any, tools: Tools) -> tuple[Message, ...]:
    """Raises RequestError naming the place."""
    return _Reading(tools).all(system, messages)


class _Reading:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._turns: list[Message] = []
        self._called: dict[str, str] = {}
        """Call ids so far -> tool."""

    def all(self, system: Any, messages: Any) -> tuple[Message, ...]:
        if not isinstance(messages, list):
            raise wrong("messages", "Field required" if messages is None else "Input should be a valid list")
        if not messages:
            raise wrong("messages", "at least one message is required")
        if system:
            self._turns.append(Message(role="system", content=self._text(system, "system")))
        for place, message in enumerate(messages):
            self._message(message, f"messages.{place}")
        if messages[-1]["role"] == "assistant":
            raise wrong("messages", "assistant message prefill is not supported here; the conversation must end with a user message")
        return tuple(self._turns)

    def _message(self, message: Any, where: str) -> None:
        if not isinstance(message, dict):
            raise wrong(where, "Input should be an object")
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            raise wrong(f"{where}.role", f"Input should be 'user', 'assistant' or 'system', not {str(role)[:40]!r}")
        if isinstance(content, str):
            self._turns.append(Message(role=role, content=content))
        elif not isinstance(content, list):
            raise wrong(f"{where}.content", "Field required" if content is None else "Input should be a string or a list of blocks")
        elif role == "assistant":
            self._assistant(content, where)
        elif role == "user":
            self._user(content, where)
        else:
            self._turns.append(Message(role=role, content=self._text(content, f"{where}.content")))

    def _assistant(self, blocks: list[Any], where: str) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for place, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            here = f"{where}.content.{place}"
            if kind == "text":
                texts.append(_string(block, "text", here))
            elif kind == "tool_use":
                calls.append(self._call(block, here, calls))
            elif kind == "thinking":
                thoughts.append(_string(block, "thinking", here) or carried(_string(block, "signature", here, "")))
            elif kind == "redacted_thinking":
                thoughts.append(carried(_string(block, "data", here)))
            else:
                raise _unknown(block, here)
        content = texts[0] if len(texts) == 1 else "".join(texts)
        self._turns.append(Message(role="assistant", content=content, tool_calls=tuple(calls), reasoning="".join(thoughts)))

    def _call(self, block: dict[str, Any], where: str, before: list[ToolCall]) -> ToolCall:
        id, name, arguments = _string(block, "id", where), _string(block, "name", where), block.get("input")
        if not isinstance(arguments, dict):
            raise wrong(f"{where}.input", "Field required" if arguments is None else "Input should be an object")
        if any(call.id == id for call in before):
            raise wrong(f"{where}.id", "`tool_use` ids must be unique")
        self._called[id] = name
        return ToolCall(id=id, name=name, arguments=_arguments(arguments))

    def _user(self, blocks: list[Any], where: str) -> None:
        texts: list[str] = []
        for place, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_result":
                self._result(block, f"{where}.content.{place}")
            elif kind == "text":
                texts.append(_string(block, "text", f"{where}.content.{place}"))
            else:
                raise _unknown(block, f"{where}.content.{place}")
        if texts or not blocks:
            self._turns.append(Message(role="user", content=texts[0] if len(texts) == 1 else "\n".join(texts)))

    def _result(self, block: dict[str, Any], where: str) -> None:
        id, content = _string(block, "tool_use_id", where), block.get("content")
        name = self._called.get(id)
        if name is None:
            text = f"unexpected `tool_use_id` found in `tool_result` blocks: {id[:80]}. Each `tool_result` block must have a corresponding"
            raise wrong(where, f"{text} `tool_use` block in a previous message.")
        text = self._text(content, f"{where}.content") if content else ""
        if block.get("is_error"):
            # Templates know no failed results; plain words say it to the model.
            text = f"Error: {text}"
        self._turns.append(Message(role="tool", content=text, tool_call_id=id, name=name))

    def _text(self, content: Any, where: str) -> str:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise wrong(where, "Input should be a string or a list of blocks")
        texts: list[str] = []
        for place, block in enumerate(content):
            kind = block.get("type") if isinstance(block, dict) else None
            here = f"{where}.{place}"
            if kind == "text":
                texts.append(_string(block, "text", here))
            elif kind == "tool_reference":
                texts.append(self._tools.reference(block, here))
            elif kind in _CHANGES:
                texts.append(self._tools.change(block, here))
            else:
                raise _unknown(block, here)
        return texts[0] if len(texts) == 1 else "\n".join(texts)


def _arguments(value: dict[str, Any]) -> str:
    """JSON text of a tool's input; arguments that never were an object come back as they were."""
    unparsed = value.get(UNPARSED)
    if len(value) == 1 and isinstance(unparsed, dict) and isinstance(unparsed.get("raw"), str):
        return str(unparsed["raw"])
    return orjson.dumps(value).decode()


def _string(block: dict[str, Any], name: str, where: str, default: str | None = None) -> str:
    value = block.get(name)
    if isinstance(value, str):
        return value
    if value is None and default is not None:
        return default
    raise wrong(f"{where}.{name}", "Field required" if value is None else "Input should be a valid string")


def _unknown(block: Any, where: str) -> Exception:
    if not isinstance(block, dict):
        return wrong(where, "Input should be an object")
    return wrong(f"{where}.type", f"blocks of type {str(block.get('type'))[:40]!r} are not supported here", "unsupported_content")
