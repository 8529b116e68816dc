"""The engine with a real SGLang: the contract suite of engines word for word, then what only a real server can show.

One server for all of it (shared_sglang.py), float32, weights over gloo; the last test kills it.
"""

import asyncio
import itertools
import json
import os
import signal
from typing import Any

import pytest
import torch

from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.protocol.identity import Version
from tests.contracts import test_computing_engine, test_engine, test_engine_endings
from tests.fakes.contract_kinds import of_kind
from tests.fakes.engine_rig import LONG, V0, V1, Rig, full_forward_logprobs, run, until

globals().update(of_kind("sglang", test_engine, test_computing_engine, test_engine_endings))

pytestmark = pytest.mark.timeout(300)
"""The first one starts the server: 20 s on a quiet machine, minutes on one that does much else."""

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
BOUND = 1e-4
"""Of a log-prob, float32 in two programs; the wrong weights are off by more than a thousand times that."""


def logprobs_of(answer: dict[str, Any]) -> torch.Tensor:
    return torch.tensor([entry[0] for entry in answer["meta_info"]["output_token_logprobs"]])


def gaps(version: Version, prompt: list[int], answer: dict[str, Any], temperature: float = 1.0) -> torch.Tensor:
    """Between each token's told log-prob and the training forward's with these weights [tokens]."""
    return (logprobs_of(answer) - full_forward_logprobs(version, prompt + answer["output_ids"], len(prompt), temperature)).abs()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_the_training_forwards_at_the_temperature_asked_for(temperature: float) -> None:
    async def test(rig: Rig) -> None:
        answer = await rig.generate(PROMPT, 60, temperature=temperature)
        assert gaps(V0, PROMPT, answer, temperature).max() < BOUND
        narrow = await rig.generate(PROMPT, 60, temperature=temperature, top_p=0.5, top_k=8)
        assert gaps(V0, PROMPT, narrow, temperature).max() < BOUND, "of the whole distribution, whatever top_p and top_k cut off"

    run("sglang", test)


def test_calls_that_end_as_soon_as_they_began_leave_nothing_at_the_server() -> None:
    """An abort that comes before the server knows the request would be forgotten: these would run for a minute each."""

    async def test(rig: Rig) -> None:
        for turns in itertools.chain(range(40), range(0, 400, 10)):
            call = asyncio.create_task(rig.post("/generate", rig.body([turns % 64, *PROMPT], LONG, rid="early")))
            await until(lambda: rig.engine.num_live() == 1)
            for _ in range(turns):
                await asyncio.sleep(0)
            await rig.post("/abort_request", {"rid": "early"})
            status, answer = await call
            assert (status, answer["meta_info"]["finish_reason"]["type"]) == (200, "abort")
            assert len(answer["output_ids"]) == len(answer["meta_info"]["output_token_logprobs"]) < LONG
        rig.engine.close_admission(2)
        await rig.engine.sleep()
        assert rig.engine.failure() is None

    run("sglang", test)


def test_an_abort_keeps_every_token_and_each_is_the_models() -> None:
    async def test(rig: Rig) -> None:
        prompts = [[n, *PROMPT] for n in range(6)]
        tasks = await rig.begin(*(rig.body(prompt, LONG, temperature=1.0) for prompt in prompts))
        await rig.move_on(rig.engine.counters()["sampled"] + 100)
        before = [len(call.answer.ids) for call in rig.engine.book.live()]
        await rig.engine.abort_all({})
        answers = [(await task)[1] for task in tasks]
        assert [len(answer["output_ids"]) for answer in answers] == before
        assert rig.engine.counters()["sampled"] == sum(before) > 200
        for prompt, answer in zip(prompts, answers, strict=True):
            assert gaps(V0, prompt, answer).max() < BOUND

    run("sglang", test)


def test_new_weights_take_effect_exactly_at_the_recorded_boundary() -> None:
    async def test(rig: Rig) -> None:
        prompts = [[n, *PROMPT] for n in range(6)]
        tasks = await rig.begin(*(rig.body(prompt, 160, temperature=1.0) for prompt in prompts))
        await rig.engine.update_weights(V1)
        await rig.move_on(rig.engine.counters()["sampled"] + 60)
        await rig.engine.update_weights(V0)
        await rig.go_on()
        boundaries, strangers = set(), []
        for prompt, task in zip(prompts, tasks, strict=True):
            _, answer = await task
            spans = answer["meta_info"]["weight_versions"]
            assert [span["version"] for span in spans] == [str(V0), str(V1), str(V0)]
            assert (spans[0]["start"], spans[-1]["end"]) == (0, 160)
            of = {str(version): gaps(version, prompt, answer) for version in (V0, V1)}
            for span in spans:
                told, other = of[span["version"]], of[str(V1) if span["version"] == str(V0) else str(V0)]
                assert told[span["start"] : span["end"]].max() < BOUND
                strangers += [other[span["start"]], other[span["end"] - 1]]
            boundaries.update(span["start"] for span in spans[1:])
        assert torch.stack(strangers).mean() > 1000 * BOUND, "with a boundary off by one a token would be explained by the wrong weights"
        assert len(boundaries) > 1, "calls change where each of them stood"

    run("sglang", test)


async def stream_until_the_end(rig: Rig, body: dict[str, Any]) -> tuple[list[int], str]:
    """(tokens that came, what was said at last)."""
    ids: list[int] = []
    async with rig.session.post(rig.url + "/generate", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    return ids, str(event["error"]["message"])
                ids += event["output_ids"]
    return ids, ""


def test_a_server_killed_in_mid_call_costs_nothing_but_time() -> None:
    undisturbed: list[int] = []
    kept: list[int] = []

    async def killed(rig: Rig) -> None:
        undisturbed.extend((await rig.generate(PROMPT, 400))["output_ids"])
        streaming = asyncio.create_task(stream_until_the_end(rig, rig.body(PROMPT, LONG, stream=True, incremental=True)))
        whole = asyncio.create_task(rig.post("/generate", rig.body([7, *PROMPT], LONG)))
        sampled = rig.engine.counters()["sampled"]
        await until(lambda: rig.engine.counters()["sampled"] > sampled + 100)
        assert isinstance(rig.engine, SGLangEngine)
        delivered = [len(call.answer.ids) for call in rig.engine.book.live()]
        os.kill(rig.engine.pids()[1], signal.SIGKILL)
        ids, words = await streaming
        assert len(ids) >= delivered[0] and words
        status, answer = await whole
        assert (status, bool(answer["error"]["message"])) == (500, True)
        assert rig.engine.num_live() == 0 and (rig.engine.failure() or "").startswith("SGLang: ")
        assert (await rig.post("/generate", rig.body(PROMPT, 4)))[0] == 500
        assert (await rig.get("/health"))[0] == 503
        kept.extend(ids)

    async def goes_on(rig: Rig) -> None:
        ids = kept[: len(undisturbed) - 20]
        rest = await rig.generate(PROMPT + ids, len(undisturbed) - len(ids))
        assert ids + rest["output_ids"] == undisturbed
        assert gaps(V0, PROMPT + ids, rest).max() < BOUND

    run("sglang", killed)
    run("sglang", goes_on)
