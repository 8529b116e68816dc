"""Render, Parse and MeasureCpu, in the loop's thread: a suffix costs tens of microseconds."""

from collections.abc import Callable
from typing import Any

from gyre_hpc.chat.base import Answer, ChatFormat
from gyre_hpc.gateway.protocols.base import TokenLogprob
from gyre_hpc.machines.call.actions import MeasureCpu, Parse, Render
from gyre_hpc.observability.cpu import cpu_seconds
from gyre_hpc.protocol.tensors import pack_ids, unpack_floats, unpack_ids

Progress = Callable[[Any], None]


class Rendering:
    """The chat format as actions."""

    def __init__(self, chat_format: ChatFormat) -> None:
        self._format = chat_format

    async def render(self, key: str, action: Render, progress: Progress) -> bytes:
        """Packed ids. Whatever the format raises means that it does not take these messages."""
        if action.ended is None:
            return pack_ids(self._format.render(action.messages, action.tools))
        return pack_ids(self._format.render_suffix(action.messages, ended=action.ended))

    async def parse(self, key: str, action: Parse, progress: Progress) -> Answer:
        return self._format.parse(unpack_ids(action.ids).tolist(), stop=action.stop, partial=action.partial)

    def logprobs(self, ids: bytes, logprobs: bytes) -> tuple[TokenLogprob, ...]:
        """What a client that asked for log-probs gets, token by token."""
        decode = self._format.tokenizer.decode
        texts = [decode([id]) for id in unpack_ids(ids).tolist()]
        values = unpack_floats(logprobs).tolist()
        return tuple(TokenLogprob(text=text, raw=text.encode(), logprob=value) for text, value in zip(texts, values, strict=True))


async def measure_cpu(key: str, action: MeasureCpu, progress: Progress) -> float:
    """CPU seconds of this process so far, user and system."""
    return cpu_seconds()[0]
