"""What every engine that computes keeps: weight updates at the recorded token, pausing, prefix reuse, full memory."""

import asyncio
from typing import Any

import pytest

from tests.fakes.engine_rig import V0, V1, Rig, run

COMPUTING = ["embedded", "two_ranks", "timed"]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


@pytest.mark.parametrize("kind", COMPUTING)
@pytest.mark.parametrize("keep_kv", [False, True])
def test_a_weight_update_takes_effect_at_the_recorded_token(kind: str, keep_kv: bool) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, 200))
        await rig.engine.update_weights(V1)
        await rig.go_on()
        _, answer = await task
        old, new = answer["meta_info"]["weight_versions"]
        assert (old["version"], old["start"], new["version"], new["end"]) == (str(V0), 0, str(V1), 200)
        assert 20 <= old["end"] == new["start"] < 200
        assert len(answer["output_ids"]) == 200
        assert answer["meta_info"]["num_retractions"] == (0 if keep_kv else 1)

    run(kind, test, keep_kv=keep_kv)


@pytest.mark.parametrize("kind", COMPUTING)
def test_an_update_to_the_version_served_disturbs_nobody(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, 100))
        await rig.engine.update_weights(V0)
        await rig.go_on()
        _, answer = await task
        assert answer["meta_info"]["num_retractions"] == 0
        assert len(answer["meta_info"]["weight_versions"]) == 1

    run(kind, test)


@pytest.mark.parametrize("kind", COMPUTING)
@pytest.mark.parametrize("mode", ["in_place", "retract", "abort"])
def test_a_paused_engine_goes_on_or_ends_as_the_mode_says(kind: str, mode: str) -> None:
    async def test(rig: Rig) -> None:
        undisturbed = (await rig.generate(PROMPT, 120))["output_ids"]
        await rig.post("/flush_cache")
        (task,) = await rig.begin(rig.body(PROMPT, 120))
        assert (await rig.post("/pause_generation", {"mode": mode}))[0] == 200
        stood_at = rig.engine.counters()["sampled"]
        if mode != "abort":
            assert not task.done()
            assert (await rig.post("/flush_cache"))[0] == 400
        assert rig.engine.counters()["sampled"] == stood_at
        await rig.post("/continue_generation")
        await rig.go_on()
        _, answer = await task
        expected = undisturbed[: len(answer["output_ids"])] if mode == "abort" else undisturbed
        assert answer["output_ids"] == expected
        assert answer["meta_info"]["finish_reason"]["type"] == ("abort" if mode == "abort" else "length")
        assert answer["meta_info"]["num_retractions"] == (1 if mode == "retract" else 0)
        assert answer["meta_info"]["cached_tokens"] == 0, "its own pages, found again, are not the prompt's cache hit"

    run(kind, test)


@pytest.mark.parametrize("kind", COMPUTING)
def test_a_second_turn_finds_the_first_ones_pages(kind: str) -> None:
    async def test(rig: Rig) -> None:
        first = await rig.generate(PROMPT, 30)
        second = await rig.generate(PROMPT + first["output_ids"] + [7, 7], 5)
        known = len(PROMPT) + 29
        assert second["meta_info"]["cached_tokens"] == known // 8 * 8
        assert (await rig.post("/flush_cache"))[0] == 200
        assert (await rig.generate(PROMPT + first["output_ids"], 5))["meta_info"]["cached_tokens"] == 0

    run(kind, test)


@pytest.mark.parametrize("kind", COMPUTING)
def test_more_calls_than_rows_and_pages_all_end(kind: str) -> None:
    async def test(rig: Rig) -> None:
        answers = await asyncio.gather(*(rig.generate([n, *PROMPT], 300, key=f"0{n}") for n in range(8)))
        assert all(len(answer["output_ids"]) == 300 for answer in answers)
        _, loads = await rig.get("/v1/loads")
        assert loads["loads"][0]["num_used_tokens"] == 0
        assert (await rig.generate([0, *PROMPT], 300, key="00"))["output_ids"] == answers[0]["output_ids"]

    run(kind, test, kv_tokens=2048, max_batch=7)


@pytest.mark.parametrize("kind", [*COMPUTING, "scripted"])
def test_update_weight_version_changes_what_is_served(kind: str) -> None:
    async def test(rig: Rig) -> None:
        status, _ = await rig.post("/update_weight_version", {"new_version": str(V1), "abort_all_requests": False})
        assert status == 200
        assert (await rig.generate(PROMPT, 3))["meta_info"]["weight_version"] == str(V1)
        assert (await rig.post("/update_weight_version", {"new_version": "newest"}))[0] == 400

    run(kind, test)
