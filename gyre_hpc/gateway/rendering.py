"""Render, Parse and MeasureCpu. A suffix costs tens of microseconds in the loop's thread; what is long goes to another one.

Results need no order: the machine knows them by their keys.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

from gyre_hpc.chat.base import Answer, ChatFormat, Message, Reader
from gyre_hpc.gateway.protocols.base import TokenLogprob
from gyre_hpc.machines.call.actions import MeasureCpu, Parse, Render
from gyre_hpc.observability.cpu import cpu_seconds
from gyre_hpc.protocol.tensors import pack_ids, unpack_floats, unpack_ids
from gyre_hpc.shell.host import LATER

Progress = Callable[[Any], None]
LONG_CHARS = 64 << 10
"""Text of messages beyond which a prompt is rendered in another thread: 64 kB take some 20 ms, and the tokenizer lets others run."""
MOST_READERS = 512
"""Streamed answers whose reading is kept up; one beyond is read from its beginning again."""


class Rendering:
    """The chat format as actions."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format = chat_format
        self._readers: OrderedDict[str, tuple[Reader, int]] = OrderedDict()
        """By call: its reader, and the number of ids it was fed."""

    async def render(self, key: str, action: Render, progress: Progress) -> bytes:
        """Packed ids. Whatever the format raises means that it does not take these messages."""
        return await asyncio.to_thread(self._render, action) if _is_long(action) else self._render(action)

    async def count(self, messages: tuple[Message, ...], tools: tuple[dict[str, Any], ...]) -> int:
        """Tokens of such a prompt. Raises what the format raises."""
        return len(await self.render("", Render(messages, tools, None), lambda item: None)) // 4

    def render_short(self, action: Render) -> Any:
        """The same at once, or LATER."""
        return LATER if _is_long(action) else self._render(action)

    def _render(self, action: Render) -> bytes:
        if action.ended is None:
            return pack_ids(self._format.render(action.messages, action.tools))
        return pack_ids(self._format.render_suffix(action.messages, ended=action.ended, thought=action.thought))

    async def parse(self, key: str, action: Parse, progress: Progress) -> Answer:
        return self.parsed(action)

    def parsed(self, action: Parse) -> Answer:
        """The same at once."""
        if action.partial:
            return self._read(action)
        reader, num = self._readers.pop(action.call, (None, 0))
        if reader is not None and len(action.ids) >= 4 * num:
            reader.feed(unpack_ids(action.ids[4 * num :]).tolist())
            return reader.finish()
        return self._format.parse(unpack_ids(action.ids).tolist(), stop=action.stop, tools=action.tools)

    def _read(self, action: Parse) -> Answer:
        """Only the ids that are new are read. Readers are a memory of what is told anyway: losing one costs time alone."""
        reader, num = self._readers.pop(action.call, (None, 0))
        if reader is None or len(action.ids) < 4 * num:
            reader, num = self._format.reader(stop=action.stop, tools=action.tools), 0
        answer = reader.feed(unpack_ids(action.ids[4 * num :]).tolist())
        self._readers[action.call] = (reader, len(action.ids) // 4)
        if len(self._readers) > MOST_READERS:
            self._readers.popitem(last=False)
        return answer

    def logprobs(self, ids: bytes, logprobs: bytes) -> tuple[TokenLogprob, ...]:
        """What a client that asked for log-probs gets, token by token."""
        tokenizer = self._format.tokenizer
        pairs = zip(unpack_ids(ids).tolist(), unpack_floats(logprobs).tolist(), strict=True)
        return tuple(TokenLogprob(text=tokenizer.decode([id]), raw=tokenizer.bytes_of(id), logprob=value) for id, value in pairs)


def _is_long(action: Render) -> bool:
    num_chars = sum(len(message.content) + len(message.reasoning) for message in action.messages)
    num_chars += sum(len(call.arguments) for message in action.messages for call in message.tool_calls)
    return num_chars + (len(orjson.dumps(action.tools)) if action.tools else 0) > LONG_CHARS


async def measure_cpu(key: str, action: MeasureCpu, progress: Progress) -> float:
    """CPU seconds of this process so far, user and system."""
    return cpu_seconds()[0]
