"""An engine whose model two ranks hold together: the tokens of one rank, and what happens when a rank fails or is lost."""

import asyncio
import os
import signal
from typing import Any

import pytest

from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.protocol.identity import Version
from tests.fakes import second_rank
from tests.fakes.engine_rig import FOLLOWER, LONG, V0, V1, Rig, run

PROMPTS = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3], [7]]


def test_greedy_and_drawn_tokens_are_those_of_one_rank() -> None:
    told: dict[str, list[Any]] = {}

    async def test(rig: Rig) -> None:
        draws = [{}, {"temperature": 0.0}, {"top_p": 0.9, "top_k": 20, "temperature": 1.2}]
        answers = await asyncio.gather(
            *(rig.generate(prompt, 120, key=f"0{n}", **draws[n]) for n, prompt in enumerate(PROMPTS))
        )  # fmt: skip
        told.setdefault("ids", []).append([answer["output_ids"] for answer in answers])
        told.setdefault("logprobs", []).append(
            [entry[0] for answer in answers for entry in answer["meta_info"]["output_token_logprobs"]]
        )  # fmt: skip
        told.setdefault("used", []).append([memory.used for memory in await slept_and_woken(rig)])

    run("embedded", test)
    run("two_ranks", test)
    assert told["ids"][0] == told["ids"][1]
    assert told["logprobs"][1] == pytest.approx(told["logprobs"][0], abs=1e-5)
    one, (first, second) = told["used"][0][0], told["used"][1]
    assert first < 0.7 * one and second < 0.7 * one, "each has about half of weights and KV"


async def slept_and_woken(rig: Rig) -> Any:
    rig.engine.close_admission(2)
    await rig.engine.sleep()
    return await rig.engine.wake(V0)


def test_a_version_that_one_rank_lacks_is_refused_and_the_old_one_served_on_by_both() -> None:
    async def test(rig: Rig) -> None:
        assert isinstance(rig.engine, EmbeddedEngine)
        only_here = Version(0, 5)
        rig.engine._store.put(only_here, rig.engine._store.get(V1))
        with pytest.raises(RuntimeError, match="rank 1: KeyError"):
            await rig.engine.update_weights(only_here)
        assert rig.engine.failure() is None
        assert (await rig.generate(PROMPTS[0], 5))["meta_info"]["weight_version"] == str(V0)
        await rig.engine.update_weights(V1)
        assert (await rig.generate(PROMPTS[0], 5))["meta_info"]["weight_version"] == str(V1)

    run("two_ranks", test)


def test_calls_of_an_engine_that_loses_a_rank_end_with_its_name_and_the_engine_is_broken() -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPTS[0], LONG))
        pid = second_rank.get().pid
        os.kill(pid, signal.SIGKILL)
        await rig.post("/continue_generation")
        status, answer = await task
        assert status == 500
        assert "rank 1" in answer["error"]["message"]
        assert "CellLost" in (rig.engine.failure() or "") and "rank 1" in (rig.engine.failure() or "")
        assert (await rig.post("/generate", rig.body(PROMPTS[0], 2)))[0] == 500

    run("two_ranks", test)


def test_a_rank_that_sampled_other_tokens_is_found_out_at_the_next_turn() -> None:
    async def test(rig: Rig) -> None:
        assert isinstance(rig.engine, EmbeddedEngine)
        (task,) = await rig.begin(rig.body(PROMPTS[0], LONG))
        rig.engine._core.trace += 1
        await rig.post("/continue_generation")
        status, _ = await task
        assert status == 500
        failure = second_rank.get().ask("__getattribute__", FOLLOWER, "failure")
        assert "other tokens than its leader" in str(failure)

    run("two_ranks", test)
