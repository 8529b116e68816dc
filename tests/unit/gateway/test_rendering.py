"""Rendering and reading: long prompts leave the loop free, streamed answers are read once."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gyre_hpc.chat.base import Answer, Message, Reader
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.gateway import rendering
from gyre_hpc.gateway.rendering import Rendering
from gyre_hpc.machines.call.actions import Parse, Render
from gyre_hpc.protocol.tensors import pack_floats, pack_ids


class Watched(DrillFormat):
    """Remembers in which thread it renders, and what its readers are fed."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.fed: list[int] = []

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        self.threads.append(threading.get_ident())
        return super().render(messages, tools)

    def reader(self, *, stop: Sequence[str] = (), tools: Sequence[dict[str, Any]] = ()) -> Reader:
        return _Watched(super().reader(stop=stop, tools=tools), self.fed)


class _Watched(Reader):
    def __init__(self, inner: Reader, fed: list[int]) -> None:
        self._inner, self._fed = inner, fed

    def feed(self, ids: Sequence[int]) -> Answer:
        self._fed.append(len(ids))
        return self._inner.feed(ids)

    def finish(self) -> Answer:
        return self._inner.finish()


def nothing(item: Any) -> None:
    pass


@pytest.mark.parametrize(("size", "elsewhere"), [(1000, False), (rendering.LONG_CHARS + 1, True)])
def test_long_prompts_are_rendered_in_another_thread_with_the_same_result(size: int, elsewhere: bool) -> None:
    chat = Watched()
    messages = (Message(role="user", content="x" * size),)
    ids = asyncio.run(Rendering(chat).render("k", Render(messages, (), None), nothing))
    assert ids == pack_ids(DrillFormat().render(messages, ()))
    assert (chat.threads[0] != threading.get_ident()) == elsewhere


def test_a_streamed_answer_is_read_once_however_often_its_beginning_is_told() -> None:
    chat = Watched()
    room = Rendering(chat)
    ids = np.frombuffer(b"a rather long answer", dtype=np.uint8).astype("<i4")

    async def read() -> list[Answer]:
        parts = [await room.parse("k", Parse(pack_ids(ids[:num]), partial=True, call="c"), nothing) for num in range(1, len(ids) + 1)]
        return [*parts, await room.parse("k", Parse(pack_ids(ids), call="c"), nothing)]

    answers = asyncio.run(read())
    assert [answer.content for answer in answers] == [*("a rather long answer"[:num] for num in range(1, 21)), "a rather long answer"]
    assert chat.fed == [*[1] * 20, 0], "the whole answer is what was read, and the end"
    assert not room._readers


def test_a_reader_that_was_let_go_costs_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "MOST_READERS", 1)
    room = Rendering(DrillFormat())

    async def read() -> list[str]:
        return [
            (await room.parse("k", Parse(pack_ids(list(text)), partial=True, call=call), nothing)).content
            for text, call in ((b"ab", "c"), (b"xy", "d"), (b"abc", "c"), (b"xyz", "d"))
        ]

    assert asyncio.run(read()) == ["ab", "xy", "abc", "xyz"]
    assert len(room._readers) == 1


def test_bytes_of_tokens_are_theirs_even_where_they_are_no_text() -> None:
    (first, second) = Rendering(DrillFormat()).logprobs(pack_ids([0xC3, 0xA9]), pack_floats([-1.0, -2.0]))
    assert (first.raw, second.raw, first.text) == (b"\xc3", b"\xa9", "\ufffd")
