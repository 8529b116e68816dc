"""Calls of ours as requests to SGLang: how they begin, stand still, go on and end."""

import asyncio
import json

import aiohttp
import pytest

from gyre_hpc.engines.backend import PauseMode
from gyre_hpc.engines.ids_digest import IdsDigest
from gyre_hpc.engines.sglang.parts import Chunk, NotAnswered, Refused, ServerLost
from gyre_hpc.engines.sglang.sent import seed
from tests.fakes.scripted_upstream import token_after
from tests.fakes.sglang_bench import VERSIONS, Bench, check_truth, run


def test_an_answer_is_what_the_server_computed_and_ends_as_it_was_asked() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.finish()
        assert len(call.answer.ids) == 20
        assert call.answer.finish == {"type": "length", "length": 20}
        assert call.answer.digest == IdsDigest([1, 2, 3, *call.answer.ids]).hexdigest()
        check_truth(call)
        assert one.engine.counters() == {"sampled": 20, "prefilled": 3, "cached": 0, "retracted": 0, "decode_steps": 20}

    run(test)


def test_an_abort_that_comes_before_the_server_knows_the_request_waits_for_that() -> None:
    async def test(one: Bench) -> None:
        one.upstream.lets_in = False
        call = one.ask(20)
        await one.settle()
        one.engine.abort(call, "enough")
        await one.settle()
        assert one.upstream.aborts == [] and not call.is_over
        one.upstream.let_in()
        await one.settle()
        assert len(one.upstream.aborts) == 1
        assert call.answer.finish is not None and call.answer.finish["message"] == "enough"
        assert not one.upstream.requests

    run(test)


def test_an_abort_keeps_tokens_the_server_had_not_sent_yet() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(200)
        await one.settle()
        one.upstream.compute(3)
        one.upstream.speak()
        one.upstream.compute(4)
        await one.settle()
        assert len(call.answer.ids) == 3
        one.engine.abort(call, "moved", "cell-7")
        await one.settle()
        assert len(call.answer.ids) == 7
        assert call.answer.finish is not None and call.answer.finish["moved_to"] == "cell-7"
        check_truth(call)
        assert one.upstream.num_lost == 0

    run(test)


def test_a_call_that_waits_at_the_gate_ends_without_a_request() -> None:
    async def test(one: Bench) -> None:
        await one.engine.pause(PauseMode.in_place)
        call = one.ask(20)
        await one.settle()
        assert not one.upstream.requests
        one.engine.abort(call, "enough")
        await one.settle()
        assert call.answer.finish is not None and call.answer.finish["type"] == "abort"

    run(test)


def test_standing_still_ends_every_request_and_going_on_continues_each_where_it_was() -> None:
    async def test(one: Bench) -> None:
        calls = [one.ask(40, prompt=(n, n + 1)) for n in range(12)]
        await one.settle()
        for n, request in enumerate(list(one.upstream.requests.values())):
            one.upstream.compute(1 + n, request.rid)
            one.upstream.speak(request.rid)
            one.upstream.compute(n % 4, request.rid)
        await one.engine.pause(PauseMode.retract)
        assert not one.upstream.requests and one.upstream.num_lost == 0
        assert [len(call.answer.ids) for call in calls] == [1 + n + n % 4 for n in range(12)]
        sampled = one.engine.counters()["sampled"]
        await one.settle()
        assert one.engine.counters()["sampled"] == sampled and not one.upstream.requests
        await one.engine.resume()
        await one.settle()
        begun = {tuple(request.prompt) for request in one.upstream.requests.values()}
        assert begun == {(*call.request.input_ids, *call.answer.ids) for call in calls}
        await one.finish()
        for call in calls:
            assert len(call.answer.ids) == 40 and call.answer.num_retractions == 1
            check_truth(call)

    run(test)


def test_chunks_that_repeat_or_come_late_are_taken_once() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(30)
        await one.settle()
        one.upstream.compute(8)
        one.upstream.speak()
        one.upstream.compute(5)
        one.upstream.speak(repeat=3)
        await one.settle()
        assert len(call.answer.ids) == 13
        await one.finish()
        check_truth(call)

    run(test)


@pytest.mark.parametrize(
    ("start", "ids", "version", "words"),
    [
        (4, [9], "0.0", "are missing"),
        (0, [51, 51, 51], "0.0", "differs"),
        (3, [7], "0.1", "of version '0.1' while 0.0 is served"),
    ],
)
def test_what_no_request_can_say_is_the_end_of_the_engine(start: int, ids: list[int], version: str, words: str) -> None:
    async def test(one: Bench) -> None:
        call, other = one.ask(30), one.ask(30, prompt=(9,))
        await one.settle()
        one.upstream.compute(3)
        one.upstream.speak()
        await one.settle()
        rid = next(iter(one.upstream.requests))
        one.upstream.say(rid, Chunk(start=start, ids=tuple(ids), logprobs=(-1.0,) * len(ids), cached=0, version=version))
        await one.settle()
        assert words in (one.engine.failure() or "")
        for lost in (call, other):
            assert (lost.status, len(lost.answer.ids)) == (500, 3) and words in (lost.error or "")
        assert not one.upstream.requests, "their connections are closed"
        late = one.ask(3)
        assert late.error is not None

    run(test)


def test_a_lost_server_ends_every_call_after_the_tokens_it_has() -> None:
    async def test(one: Bench) -> None:
        calls = [one.ask(30, prompt=(n,)) for n in range(5)]
        await one.settle()
        one.upstream.compute(4)
        one.upstream.speak()
        one.upstream.die()
        await one.settle()
        assert all(len(call.answer.ids) == 4 and call.status == 500 and "connection reset" in (call.error or "") for call in calls)
        assert one.engine.failure() == "SGLang: connection reset"
        one.holder.reason = "ended with signal 9"
        assert one.engine.failure() == "SGLang: connection reset; ended with signal 9"
        assert one.engine.num_live() == 0

    run(test)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (Refused("too long"), 400),
        (NotAnswered("KVTransferError: Lost connection"), 500),
        (Chunk(start=0, ids=(), logprobs=(), cached=0, version="0.0", finish={"type": "abort", "message": "no", "status_code": 400}), 400),
        (Chunk(start=0, ids=(), logprobs=(), cached=0, version="0.0", finish={"type": "abort", "message": "no", "status_code": 503}), 500),
        (Chunk(start=0, ids=(), logprobs=(), cached=0, version="0.0", finish={"type": "stop", "matched": 2}), 500),
    ],
)
def test_a_request_that_is_refused_or_given_up_ends_its_call_alone(event: Chunk | Exception, status: int) -> None:
    async def test(one: Bench) -> None:
        call, other = one.ask(30), one.ask(30, prompt=(9,))
        await one.settle()
        one.upstream.say(next(iter(one.upstream.requests)), event)
        await one.settle()
        assert call.error is not None and call.status == status
        assert one.engine.failure() is None
        await one.finish()
        check_truth(other)
        assert len(other.answer.ids) == 30

    run(test)


def test_an_answer_that_the_server_ends_too_early_goes_on() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(30)
        await one.settle()
        one.upstream.compute(11)
        one.upstream.end("", {"type": "stop", "matched": 2})
        await one.settle()
        await one.finish()
        assert len(call.answer.ids) == 30
        check_truth(call)

    run(test)


def test_what_the_server_computes_beyond_our_end_is_not_shown() -> None:
    async def test(one: Bench) -> None:
        ids = [1, 2, 3]
        while len(ids) < 12:
            ids.append(token_after("0.0", ids))
        call = one.ask(30, stop_ids=frozenset([ids[-1]]))
        end = ids.index(ids[-1], 3) - 2
        await one.settle()
        one.upstream.compute(15)
        one.upstream.speak()
        await one.settle()
        assert call.answer.finish == {"type": "stop", "matched": ids[-1]}
        assert len(call.answer.ids) == end
        assert not one.upstream.requests, "it was ended at the server"
        assert one.engine.counters()["sampled"] == end

    run(test)


def test_kv_is_as_old_as_what_the_cache_may_hold() -> None:
    async def test(one: Bench) -> None:
        await one.engine.update_weights(VERSIONS[1])
        fresh, found = one.ask(5), one.ask(5, prompt=(9,))
        await one.settle()
        list(one.upstream.requests.values())[1].cached = 1
        one.upstream.compute(1)
        one.upstream.speak()
        await one.finish()
        assert (fresh.answer.oldest_kv, found.answer.oldest_kv) == ("0.1", "0.0")
        assert await one.engine.flush_cache()
        later = one.ask(5)
        await one.settle()
        next(iter(one.upstream.requests.values())).cached = 3
        one.upstream.compute(1)
        one.upstream.speak()
        await one.finish()
        assert later.answer.oldest_kv == "0.1"

    run(test, keep_kv=True)


def test_retractions_are_those_of_every_request_and_ours() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.settle()
        for number in (1, 1, 2):
            rid = next(iter(one.upstream.requests))
            one.upstream.say(rid, Chunk(start=0, ids=(), logprobs=(), cached=0, version="0.0", num_retractions=number))
        await one.settle()
        await one.engine.update_weights(VERSIONS[1])
        await one.settle()
        rid = next(iter(one.upstream.requests))
        one.upstream.say(rid, Chunk(start=0, ids=(), logprobs=(), cached=0, version="0.1", num_retractions=1))
        await one.finish()
        assert call.answer.num_retractions == one.engine.counters()["retracted"] == 4

    run(test)


async def asked_by_http(one: Bench, path: str, body: dict[str, object]) -> list[bytes]:
    """The events of an answer."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as session,
        session.post(one.url + path, json=body) as response,
    ):
        return [line.removeprefix(b"data: ").strip() async for line in response.content if line.strip()]


@pytest.mark.parametrize(
    ("event", "code"), [(Refused("too long"), 400), (NotAnswered("Lost connection"), None), (ServerLost("connection reset"), None)]
)
def test_a_stream_that_breaks_off_has_told_its_tokens_before(event: Exception, code: int | None) -> None:
    """The gateway takes an error without a code for a lost cell: it asks another one, from those tokens on."""

    async def test(one: Bench) -> None:
        one.engine.open_admission(1)
        body = {"input_ids": [1, 2, 3], "stream": True, "incremental": True, "return_logprob": True}
        asking = asyncio.create_task(asked_by_http(one, "/generate", body))
        while not one.upstream.requests:
            await asyncio.sleep(0)
        await one.settle()
        one.upstream.compute(4)
        one.upstream.speak()
        one.upstream.say("", event)
        events = [json.loads(line) for line in await asking]
        assert [len(told["output_ids"]) for told in events[:-1]] == [4]
        assert events[-1]["error"].get("code") == code

    run(test)


def test_a_seed_has_63_bits_of_the_key() -> None:
    seeds = {seed(bytes([n])) for n in range(200)}
    assert len(seeds) == 200 and 1 << 62 < max(seeds) < 1 << 63
