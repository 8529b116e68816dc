"""SGLang's stream -> tokens at their positions, whatever pieces the bytes come in."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.gateway.engine_stream import EngineStream, generate_body
from gyre_hpc.machines.call.actions import EngineAttempt, Tokens
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Sampling, VersionSpan
from gyre_hpc.protocol.tensors import pack_ids, unpack_floats, unpack_ids

ATTEMPT = EngineAttempt(
    call="train-0-0-0/0", cell="cell-0", url="http://c", term=3, version=Version(0, 7), prompt=(pack_ids([1, 2]), pack_ids([3])),
    max_new_tokens=9, sampling=Sampling(temperature=0.5, top_p=0.9, top_k=0, max_new_tokens=10, key="ab"), position=1, stop_ids=(5,),
    deadline_s=10.0,
)  # fmt: skip


def event(ids: list[int], start: int | None, finish: str | None = None, **meta: Any) -> bytes:
    facts = {"finish_reason": {"type": finish} if finish else None, "output_token_logprobs": [[-token / 8, token, None] for token in ids]}
    body = {"output_ids": ids, "meta_info": facts | meta} | ({} if start is None else {"output_start": start})
    return b"data: " + orjson.dumps(body) + b"\n\n"


def read(stream: EngineStream, *pieces: bytes) -> list[Tokens]:
    return [tokens for piece in pieces for tokens in stream.feed(piece)]


@given(st.data(), st.booleans())
def test_any_cut_of_the_bytes_gives_the_same_tokens(data: st.DataObject, incremental: bool) -> None:
    ids = list(range(10, 18))
    events = [event(ids[place : place + 2], place) if incremental else event(ids[: place + 2], None) for place in range(0, 8, 2)]
    whole = b"".join(events) + event([] if incremental else ids, 8 if incremental else None, "stop") + b"data: [DONE]\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    stream = EngineStream(ATTEMPT)
    got = read(stream, *(whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)))
    assert [token for tokens in got for token in unpack_ids(tokens.ids).tolist()] == ids
    assert [value for tokens in got for value in unpack_floats(tokens.logprobs).tolist()] == [-token / 8 for token in ids]
    position = ATTEMPT.position
    for tokens in got:
        assert tokens.start == position
        position += len(tokens.ids) // 4
        assert (tokens.spans[0].start, tokens.spans[-1].end) == (tokens.start, position)
    assert stream.finish == {"type": "stop"}


def test_version_spans_count_over_the_whole_call() -> None:
    spans = [{"version": "0.7", "start": 0, "end": 2}, {"version": "0.8", "start": 2, "end": 3}]
    (tokens,) = read(EngineStream(ATTEMPT), event([1, 2, 3], 0, weight_versions=spans, oldest_kv_version="0.6", cached_tokens=2))
    assert tokens.spans == (VersionSpan(Version(0, 7), 1, 3), VersionSpan(Version(0, 8), 3, 4))
    assert (tokens.oldest_kv, tokens.cached) == (Version(0, 6), 2)


def test_an_engine_without_versions_of_ours_serves_what_the_table_says() -> None:
    (tokens,) = read(EngineStream(ATTEMPT), event([1], None, weight_version="default"))
    assert tokens.spans == (VersionSpan(Version(0, 7), 1, 2),)
    assert tokens.oldest_kv == Version(0, 7)


def test_tokens_with_different_oldest_kv_are_told_apart() -> None:
    got = read(EngineStream(ATTEMPT), event([1], 0, oldest_kv_version="0.6") + event([2], 1, oldest_kv_version="0.7"))
    assert [(tokens.start, str(tokens.oldest_kv)) for tokens in got] == [(1, "0.6"), (2, "0.7")]


def test_a_hole_is_handed_on_for_the_machine_to_see() -> None:
    got = read(EngineStream(ATTEMPT), event([1], 0) + event([9], 4))
    assert [tokens.start for tokens in got] == [1, 5]


def test_chunks_of_news_without_a_start_are_placed_by_their_running_total() -> None:
    stream = EngineStream(ATTEMPT)
    got = read(stream, event([10, 11], None, completion_tokens=2), event([12], None, "stop", completion_tokens=3))
    assert [(tokens.start, list(unpack_ids(tokens.ids))) for tokens in got] == [(1, [10, 11]), (3, [12])]


@pytest.mark.parametrize(("code", "refused"), [(400, True), (500, False), (None, False)])
def test_only_an_error_about_the_request_itself_is_a_refusal(code: int | None, refused: bool) -> None:
    stream = EngineStream(ATTEMPT)
    read(stream, b"data: " + orjson.dumps({"error": {"message": "no", "code": code}}) + b"\n\n")
    assert (stream.error, stream.is_refused) == ("no", refused)


def test_an_abort_may_say_where_the_kv_went() -> None:
    moved, plain = EngineStream(ATTEMPT), EngineStream(ATTEMPT)
    read(moved, event([], 0, finish_reason={"type": "abort", "message": "engine stops serving", "moved_to": "cell-2"}))
    read(plain, event([], 0, finish_reason={"type": "abort", "message": "engine stops serving"}))
    assert (moved.moved_to, plain.moved_to) == ("cell-2", "")


@pytest.mark.parametrize("error", [{"message": "out of memory"}, "out of memory"])
def test_an_error_in_the_stream_is_kept(error: Any) -> None:
    stream = EngineStream(ATTEMPT)
    assert read(stream, b"data: " + orjson.dumps({"error": error}) + b"\n\n") == []
    assert (stream.error, stream.finish) == ("out of memory", None)


def test_the_request_names_key_and_position_and_switches_top_k_off_in_sglangs_way() -> None:
    body = orjson.loads(generate_body("attempt/1", ATTEMPT))
    assert body["input_ids"] == [1, 2, 3]
    assert body["sampling_params"] == {
        "temperature": 0.5, "top_p": 0.9, "top_k": -1, "max_new_tokens": 9, "stop_token_ids": [5], "custom_params": {"key": "ab", "position": 1, "call": "train-0-0-0/0"},
    }  # fmt: skip
    assert (body["rid"], body["stream"], body["incremental"], body["return_logprob"]) == ("attempt/1", True, True, True)
