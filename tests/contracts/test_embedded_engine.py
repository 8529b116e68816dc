"""What only an engine that computes can break: log-probs, KV of other weights, retraction, a failing step. `two_ranks` is the
one whose model two processes hold together: equal to the training forward, it is equal to one rank, too."""

import asyncio
from typing import Any

import pytest
import torch

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.errors import UserError
from tests.fakes.engine_rig import LONG, MODEL, PARAMS, TOKEN, V0, V1, Rig, full_forward_logprobs, run
from tests.fakes.memory_store import MemoryStore

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3]
BOUND = 1e-5
BOTH = ["embedded", "two_ranks"]


def gap(answer: dict[str, Any], ids: list[int], version: Any, first: int, last: int, temperature: float = 1.0) -> float:
    """Largest difference between told and full-forward log-probs of output tokens [first, last)."""
    told = torch.tensor([entry[0] for entry in answer["meta_info"]["output_token_logprobs"][first:last]])
    full = full_forward_logprobs(version, (ids + answer["output_ids"])[: len(ids) + last], len(ids) + first, temperature)
    return (told - full).abs().max().item()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_told_logprobs_are_those_of_the_training_forward(kind: str, temperature: float) -> None:
    async def test(rig: Rig) -> None:
        prompts = [PROMPT, PROMPT + [1, 2, 3], PROMPT[:2], [*range(60)] * 3]
        answers = await asyncio.gather(*(rig.generate(p, 150, key=f"0{n}", temperature=temperature) for n, p in enumerate(prompts)))
        for prompt, answer in zip(prompts, answers, strict=True):
            assert gap(answer, prompt, V0, 0, 150, temperature) < BOUND

    run(kind, test)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("keep_kv", [False, True])
def test_cached_pages_are_never_those_of_other_weights_unless_told(kind: str, keep_kv: bool) -> None:
    """The same prompt before and after an update: with recompute the new answer is the new weights' own; with keep its
    pages are reused, which shows in cached_tokens, in oldest_kv_version and in the log-probs."""

    async def test(rig: Rig) -> None:
        prompt = PROMPT * 3
        before = await rig.generate(prompt, 10)
        assert gap(before, prompt, V0, 0, 10) < BOUND
        await rig.engine.update_weights(V1)
        after = await rig.generate(prompt, 10)
        meta = after["meta_info"]
        assert meta["weight_version"] == str(V1)
        if keep_kv:
            assert (meta["cached_tokens"], meta["oldest_kv_version"]) == (48, str(V0))
            assert gap(after, prompt, V1, 0, 10) > 1e-3
        else:
            assert (meta["cached_tokens"], meta["oldest_kv_version"]) == (0, str(V1))
            assert gap(after, prompt, V1, 0, 10) < BOUND
        again = await rig.generate(prompt, 10)
        assert again["meta_info"]["cached_tokens"] == 48
        assert again["output_ids"] == after["output_ids"]

    run(kind, test, keep_kv=keep_kv)


@pytest.mark.parametrize("kind", BOTH)
def test_after_an_update_in_mid_call_each_token_has_the_logprob_of_its_own_version(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, 150))
        await rig.engine.update_weights(V1)
        await rig.go_on()
        _, answer = await task
        boundary = answer["meta_info"]["weight_versions"][1]["start"]
        assert gap(answer, PROMPT, V0, 0, boundary) < BOUND
        assert gap(answer, PROMPT, V1, boundary, 150) < BOUND
        assert gap(answer, PROMPT, V0, boundary, boundary + 1) > 1e-3

    run(kind, test)


@pytest.mark.parametrize("kind", BOTH)
def test_with_keep_the_oldest_kv_is_told_for_the_tokens_it_touched(kind: str) -> None:
    async def test(rig: Rig) -> None:
        whole = asyncio.create_task(rig.stream(PROMPT, 400, incremental=True))
        await rig.move_on(50)
        await rig.engine.update_weights(V1)
        await rig.go_on()
        chunks = [chunk for chunk in await whole if chunk["output_ids"]]
        assert {chunk["meta_info"]["oldest_kv_version"] for chunk in chunks} == {str(V0)}
        assert chunks[-1]["meta_info"]["weight_version"] == str(V1)

    run(kind, test, keep_kv=True)


def test_with_recompute_no_chunk_mixes_versions() -> None:
    async def test(rig: Rig) -> None:
        whole = asyncio.create_task(rig.stream(PROMPT, 400, incremental=True))
        await rig.move_on(50)
        await rig.engine.update_weights(V1)
        await rig.go_on()
        chunks = [chunk for chunk in await whole if chunk["output_ids"]]
        for chunk in chunks:
            (span,) = chunk["meta_info"]["weight_versions"]
            assert span["version"] == chunk["meta_info"]["oldest_kv_version"]
        assert {chunk["meta_info"]["oldest_kv_version"] for chunk in chunks} == {str(V0), str(V1)}

    # Chunks so long that the update falls into one.
    run("embedded", test, stream_tokens=1000)


@pytest.mark.parametrize("kind", BOTH)
def test_retraction_changes_no_token_and_no_logprob(kind: str) -> None:
    async def test(rig: Rig) -> None:
        prompts = [[n, *PROMPT] for n in range(6)]
        answers = await asyncio.gather(*(rig.generate(p, 600, key=f"0{n}") for n, p in enumerate(prompts)))
        assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0
        for prompt, answer in zip(prompts, answers, strict=True):
            assert gap(answer, prompt, V0, 0, 600) < BOUND
        assert answers[0]["meta_info"]["num_retractions"] == 0, "the oldest call is never retracted"

    run(kind, test, kv_tokens=2048)


@pytest.mark.parametrize("kind", BOTH)
def test_long_prompts_are_prefilled_in_chunks_between_decode_steps(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (short,) = await rig.begin(rig.body(PROMPT, 300))
        long = asyncio.create_task(rig.generate([*range(60)] * 20, 5))
        await rig.go_on()
        answer = await long
        assert gap(answer, [*range(60)] * 20, V0, 0, 5) < BOUND
        _, undisturbed = await short
        assert gap(undisturbed, PROMPT, V0, 0, 300) < BOUND

    run(kind, test, prefill_chunk=16)


@pytest.mark.parametrize("kind", BOTH)
def test_equal_prompts_that_come_together_are_computed_once(kind: str) -> None:
    async def test(rig: Rig) -> None:
        prompt = PROMPT * 10
        answers = await asyncio.gather(*(rig.generate(prompt, 5, key=f"0{n}") for n in range(4)))
        assert sorted(answer["meta_info"]["cached_tokens"] for answer in answers) == [0, 176, 176, 176]
        assert rig.engine.counters()["prefilled"] == 180 + 3 * 4

    run(kind, test, prefill_chunk=512)


@pytest.mark.parametrize("kind", BOTH)
def test_sleep_gives_the_memory_back_and_wake_starts_with_an_empty_cache(kind: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.generate(PROMPT, 20)
        rig.engine.close_admission(2)
        slept, woke = await rig.engine.sleep(), await rig.engine.wake(V0)
        assert [memory.rank for memory in slept] == [memory.rank for memory in woke] == list(range(2 if kind == "two_ranks" else 1))
        assert all(memory.used == 0 and memory.free > 0 for memory in slept)
        assert all(memory.used > 0 for memory in woke)
        rig.engine.open_admission(3)
        assert (await rig.generate(PROMPT, 20))["meta_info"]["cached_tokens"] == 0

    run(kind, test)


@pytest.mark.parametrize("kind", BOTH)
def test_a_version_the_store_lacks_is_refused_and_the_old_one_served_on(kind: str) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(KeyError):
            await rig.engine.update_weights(type(V0)(9, 9))
        assert (await rig.generate(PROMPT, 3))["meta_info"]["weight_version"] == str(V0)

    run(kind, test)


def test_a_step_that_fails_ends_every_call_with_500_and_the_reason() -> None:
    async def test(rig: Rig) -> None:
        assert isinstance(rig.engine, EmbeddedEngine)
        (task,) = await rig.begin(rig.body(PROMPT, LONG))
        rig.engine._core.memory.rows.next_column = None  # type: ignore[union-attr,method-assign,assignment]
        await rig.post("/continue_generation")
        status, answer = await task
        assert status == 500
        assert "not callable" in answer["error"]["message"]
        assert (await rig.post("/generate", rig.body(PROMPT, 2)))[0] == 500
        assert (await rig.get("/health"))[0] == 503
        with pytest.raises(RuntimeError, match="compute thread failed"):
            await rig.engine.update_weights(V1)

    run("embedded", test)


def test_kv_that_cannot_hold_one_context_is_refused_at_the_door() -> None:
    with pytest.raises(UserError, match=r"engine\.kv_tokens=1024.*2048"):
        EmbeddedEngine(EngineConfig(kv_tokens=1024), model=MODEL, store=MemoryStore(PARAMS), run_token=TOKEN, host="127.0.0.1")
