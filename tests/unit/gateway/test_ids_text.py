"""Ids are written as they are, remembered or not, and no more is remembered than allowed."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway import ids_text
from gyre_hpc.gateway.ids_text import IdsText, as_text
from gyre_hpc.protocol.tensors import pack_ids

_ids = st.lists(st.integers(0, 3), max_size=2) | st.integers(60, 62).map(lambda num: list(range(num)))
_prompts = st.lists(_ids, max_size=12)
_asked = st.tuples(st.sampled_from("ef"), _prompts, st.integers(0, 12))


@given(st.lists(_asked, max_size=12), st.integers(0, 5000))
def test_lists_are_the_ids_of_all_pieces(asked: list[tuple[str, list[list[int]], int]], most_bytes: int) -> None:
    text, last = IdsText(most_bytes), list[list[int]]()
    for execution, prompt, num_kept in asked:
        last = last[:num_kept] + prompt
        written = text.list_of(execution, [pack_ids(ids) for ids in last], b'{"a":', b"}")
        assert orjson.loads(written) == {"a": [id for ids in last for id in ids]}
        kept = [known for branches in text._known.values() for known in branches]
        assert text._num_bytes == sum(known.num_bytes for known in kept) <= most_bytes
        for known in kept:
            assert known.num_bytes == sum(len(piece) + ids_text._OVERHEAD for piece in known.pieces) + len(known.text)


def test_only_new_pieces_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def watched(packed: bytes) -> bytes:
        written.append(len(packed) // 4)
        return as_text(packed)

    monkeypatch.setattr(ids_text, "as_text", watched)
    text, prompt = IdsText(), [pack_ids(range(1000))]
    for turn in range(1, 9):
        text.list_of("e", prompt)
        # A side question, and another agent.
        text.list_of("e", [*prompt, pack_ids(range(50)), pack_ids(range(20))])
        text.list_of("e", [pack_ids([7])] * turn)
        prompt += [bytes(bytearray(pack_ids(range(100 + turn)))), pack_ids(range(200 + turn))]
    new = [[101 + turn, 201 + turn] for turn in range(7)]
    assert written == [1000, 50, 20, 1, *(num for pair in new for num in (*pair, 50, 20, 1))]


def test_nothing_is_remembered_of_executions_that_ended_however_many_there_were() -> None:
    text = IdsText()
    text.list_of("lives", [pack_ids(range(9))])
    before = text._num_bytes
    for number in range(300):
        for prompt in (range(100), range(50, 90)):
            text.list_of(f"e{number}", [pack_ids(prompt)])
        text.forget(f"e{number}")
    assert (text._num_bytes, list(text._known)) == (before, ["lives"])
    text.forget("lives")
    assert (text._num_bytes, len(text._known)) == (0, 0)
