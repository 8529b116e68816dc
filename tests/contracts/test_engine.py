"""What every engine keeps, whatever its kind: SGLang's surface, the gate, exact continuation."""

import asyncio
import itertools
from typing import Any

import aiohttp
import pytest

from tests.fakes.engine_rig import LONG, TOKEN, V0, V1, Rig, run, until

KINDS = ["embedded", "prescribed", "timed", "scripted"]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_have_sglangs_names_and_shapes(kind: str) -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.generate(PROMPT, 12, rid="r1")
        meta = answer["meta_info"]
        assert len(answer["output_ids"]) == 12
        assert meta["id"] == "r1"
        assert meta["finish_reason"] == {"type": "length", "length": 12}
        assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (len(PROMPT), 12, 0)
        assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
        assert meta["output_token_logprobs_length"] == 12
        assert meta["weight_version"] == meta["oldest_kv_version"] == str(V0)
        assert meta["weight_versions"] == [{"version": str(V0), "start": 0, "end": 12}]
        assert meta["e2e_latency"] >= 0

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_every_path_wants_the_run_token(kind: str) -> None:
    async def test(rig: Rig) -> None:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            async with aiohttp.ClientSession(headers=headers) as stranger:
                async with stranger.post(rig.url + "/generate", json=rig.body(PROMPT, 4)) as response:
                    assert response.status == 401
                async with stranger.get(rig.url + "/server_info") as response:
                    assert response.status == 401
        assert rig.engine.counters()["sampled"] == 0

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_gate_answers_409_with_the_term_and_parks_nothing(kind: str) -> None:
    async def test(rig: Rig) -> None:
        rig.engine.close_admission(7)
        status, answer = await rig.post("/generate", rig.body(PROMPT, 4))
        assert (status, answer) == (409, {"error": "admission closed", "term": 7})
        assert rig.engine.num_live() == 0
        rig.engine.open_admission(8)
        status, answer = await rig.post("/generate", rig.body(PROMPT, 4), **{"X-Gyre-Term": "1"})
        assert (status, answer["term"]) == (409, 8)
        status, _ = await rig.post("/generate", rig.body(PROMPT, 4), **{"X-Gyre-Term": "8"})
        assert status == 200

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gate_that_closes_lets_taken_calls_end(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, 60))
        rig.engine.close_admission(2)
        assert (await rig.post("/generate", rig.body(PROMPT, 4)))[0] == 409
        await rig.go_on()
        status, answer = await task
        assert (status, len(answer["output_ids"])) == (200, 60)

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_keeps_the_tokens_and_a_continuation_draws_what_would_have_come(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, LONG, rid="long"))
        assert (await rig.post("/abort_request", {"rid": "long"}))[0] == 200
        status, cut = await task
        kept = cut["output_ids"]
        assert status == 200
        assert cut["meta_info"]["finish_reason"]["type"] == "abort"
        assert 20 <= len(kept) == len(logprobs_of(cut)) < LONG
        total = len(kept) + 40
        await rig.go_on()
        rest_task = asyncio.create_task(rig.generate(PROMPT + kept, 40, position=len(kept)))
        whole_task = asyncio.create_task(rig.generate(PROMPT, total))
        await until(lambda: rig.engine.num_live() == 2 or rest_task.done())
        await rig.go_on()
        rest, whole = await rest_task, await whole_task
        assert kept + rest["output_ids"] == whole["output_ids"]
        assert logprobs_of(cut) + logprobs_of(rest) == pytest.approx(logprobs_of(whole), abs=1e-5)

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_another_key_or_position_draws_other_tokens(kind: str) -> None:
    async def test(rig: Rig) -> None:
        rig.skip_unless_it_draws_by_key()
        one = (await rig.generate(PROMPT, 30))["output_ids"]
        assert (await rig.generate(PROMPT, 30))["output_ids"] == one
        assert (await rig.generate(PROMPT, 30, key="bb"))["output_ids"] != one
        if kind not in ("scripted", "prescribed"):
            assert (await rig.generate(PROMPT, 30, position=1))["output_ids"] != one

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_say_what_the_whole_answer_says(kind: str) -> None:
    async def test(rig: Rig) -> None:
        whole = await rig.generate(PROMPT, 40)
        cumulative = await rig.stream(PROMPT, 40)
        assert cumulative[-1]["output_ids"] == whole["output_ids"]
        assert logprobs_of(cumulative[-1]) == pytest.approx(logprobs_of(whole), abs=1e-5)
        assert cumulative[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]
        for before, after in itertools.pairwise(cumulative):
            assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
            assert before["meta_info"]["finish_reason"] is None

        deltas = await rig.stream(PROMPT, 40, incremental=True)
        assert [i for d in deltas for i in d["output_ids"]] == whole["output_ids"]
        assert [p for d in deltas for p in logprobs_of(d)] == pytest.approx(logprobs_of(whole), abs=1e-5)
        place = 0
        for delta in deltas:
            assert delta["output_start"] == place
            place += len(delta["output_ids"])
            assert delta["meta_info"]["completion_tokens"] == place
            if delta["output_ids"]:
                assert delta["meta_info"]["weight_versions"][-1]["end"] == place
        if kind != "scripted":
            assert len(deltas) >= 2

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_token_ends_the_call_and_stays_in_the_output(kind: str) -> None:
    async def test(rig: Rig) -> None:
        free = (await rig.generate(PROMPT, 40))["output_ids"]
        stop = free[17]
        first = free.index(stop)
        answer = await rig.generate(PROMPT, 40, stop_token_ids=[stop])
        assert answer["output_ids"] == free[: first + 1]
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
        ignored = await rig.generate(PROMPT, 40, stop_token_ids=[stop], ignore_eos=True)
        assert ignored["output_ids"] == free

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_calls_get_what_each_gets_alone(kind: str) -> None:
    async def test(rig: Rig) -> None:
        prompts = [[n, *PROMPT, n, n + 1] for n in range(6)]
        alone = [(await rig.generate(p, 20 + n, key=f"0{n}"))["output_ids"] for n, p in enumerate(prompts)]
        await rig.post("/flush_cache")
        together = await asyncio.gather(*(rig.generate(p, 20 + n, key=f"0{n}") for n, p in enumerate(prompts)))
        assert [answer["output_ids"] for answer in together] == alone

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_abort_all_answers_every_call_with_its_tokens(kind: str) -> None:
    async def test(rig: Rig) -> None:
        tasks = await rig.begin(rig.body(PROMPT, LONG), rig.body(PROMPT[::-1], LONG, stream=True))
        rig.engine.close_admission(2)
        assert await rig.engine.abort_all({}) == 2
        assert rig.engine.num_live() == 0
        (status, answer), (stream_status, stream) = await asyncio.gather(*tasks)
        assert (status, stream_status) == (200, 200)
        assert answer["meta_info"]["finish_reason"]["type"] == "abort"
        assert answer["output_ids"]
        assert stream.rstrip().endswith("data: [DONE]")
        await rig.engine.sleep()

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_sleep_refuses_while_calls_are_live(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, LONG))
        with pytest.raises(AssertionError, match="1 live"):
            await rig.engine.sleep()
        await rig.engine.abort_all({})
        await task
        rig.engine.close_admission(2)
        (slept,) = await rig.engine.sleep()
        assert slept.used == 0 or not rig.releases_memory
        (woke,) = await rig.engine.wake(V1)
        assert woke.rank == slept.rank == 0
        rig.engine.open_admission(3)
        await rig.go_on()
        task = asyncio.create_task(rig.generate(PROMPT, 5))
        await until(lambda: bool(rig.engine.num_live()) or task.done())
        await rig.go_on()
        assert (await task)["meta_info"]["weight_version"] == str(V1)

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_aborts_its_call(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, LONG, rid="left"))
        call = rig.engine.book.of_rid("left")
        assert call is not None
        task.cancel()
        await call.gone.wait()
        assert rig.engine.num_live() == 0
        rig.engine.close_admission(2)
        await rig.engine.sleep()

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [1] * 2048}, "is longer than the model's context length"),
        ({"input_ids": [64]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"input_ids": "text"}, "input_ids"),
        ({"sampling_params": {"temperature": -1}}, "temperature"),
        ({"sampling_params": {"top_p": 0}}, "top_p"),
        ({"sampling_params": {"max_new_tokens": 0}}, "max_new_tokens"),
        ({"sampling_params": {"custom_params": {"key": "xyz"}}}, "key"),
        ({"sampling_params": {"custom_params": {"position": -1}}}, "position"),
        ({"sampling_params": {"custom_params": {"position": len(PROMPT) + 1}}}, "position"),
        ({"sampling_params": {"stop": ""}}, "stop"),
        ({"sampling_params": {"stop": ["fine", ""]}}, "stop"),
        ({"sampling_params": {"stop": ["x" * 1025]}}, "stop"),
        ({"sampling_params": {"stop": ["x"] * 65}}, "stop"),
        ({"sampling_params": {"stop": "half a character: \ufffd"}}, "stop"),
        ({"sampling_params": {"stop": 5}}, "stop"),
    ],
)
def test_a_wrong_request_gets_400_and_the_reason(kind: str, change: dict[str, Any], words: str) -> None:
    async def test(rig: Rig) -> None:
        status, answer = await rig.post("/generate", rig.body(PROMPT, 4) | change)
        assert status == 400
        assert words in answer["error"]["message"]
        assert rig.engine.num_live() == 0

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_with_a_live_rid_takes_its_place(kind: str) -> None:
    """A gateway that restarted asks again before the engine noticed that its old connection is broken."""

    async def test(rig: Rig) -> None:
        (old,) = await rig.begin(rig.body(PROMPT, LONG, rid="same"))
        new = asyncio.create_task(rig.post("/generate", rig.body(PROMPT, 60, rid="same")))
        _, cut = await old
        assert cut["meta_info"]["finish_reason"]["type"] == "abort"
        await until(lambda: rig.engine.num_live() == 1)
        await rig.go_on()
        assert (await new)[1]["output_ids"][:20] == cut["output_ids"][:20]
        assert rig.engine.book.of_rid("same") is None

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_never_outgrows_the_context(kind: str) -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.generate([1] * 2040, 500)
        assert len(answer["output_ids"]) == 8
        assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 8}

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_tells_about_itself(kind: str) -> None:
    async def test(rig: Rig) -> None:
        assert (await rig.get("/health"))[0] == 200
        _, server = await rig.get("/server_info")
        assert (server["engine"], server["term"], server["admission_open"]) == ("embedded" if kind == "prescribed" else kind, 1, True)
        _, model = await rig.get("/model_info")
        assert (model["weight_version"], model["context_length"]) == (str(V0), 2048)
        _, loads = await rig.get("/v1/loads")
        assert loads["loads"][0]["num_running_reqs"] == 0
        await rig.generate(PROMPT, 9)
        assert rig.engine.counters()["sampled"] == 9

    run(kind, test)
