"""The embedded engine with a script: the tokens are prescribed, everything else is computed. Vocabularies of real tokenizers."""

import asyncio
from typing import Any

import aiohttp
import pytest
import torch

from gyre_hpc.config.schema import EngineConfig, ModelConfig
from gyre_hpc.engines.embedded.engine import EmbeddedEngine
from gyre_hpc.engines.scripted import ScriptedAnswer
from gyre_hpc.models import parameters, qwen3_config
from tests.fakes.engine_rig import MODEL, PARAMS, TOKEN, V0, Rig, full_forward_logprobs, run, script
from tests.fakes.memory_store import MemoryStore

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
BOUND = 1e-5


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, -1), (0.6, 3)])
def test_logprobs_are_the_models_for_the_prescribed_tokens(temperature: float, top_k: int) -> None:
    async def test(rig: Rig) -> None:
        prompts = [[n, *PROMPT] for n in range(4)]
        answers = await asyncio.gather(
            *(rig.generate(p, 100, key=f"0{n}", temperature=temperature, top_k=top_k) for n, p in enumerate(prompts))
        )
        for n, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            assert answer["output_ids"] == script(tuple(prompt), bytes([n]))[:100]
            told = torch.tensor([entry[0] for entry in answer["meta_info"]["output_token_logprobs"]])
            full = full_forward_logprobs(V0, prompt + answer["output_ids"], len(prompt), temperature)
            assert (told - full).abs().max() < BOUND

    run("prescribed", test)


async def ask(engine: EmbeddedEngine, *asked: dict[str, Any]) -> list[tuple[int, Any]]:
    """Serve, ask one after the other, close."""
    url = await engine.start()
    await engine.wake(V0)
    engine.open_admission(1)
    answers = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        for body in asked:
            async with session.post(url + "/generate", json={"return_logprob": True} | body) as response:
                answers.append((response.status, await response.json() if response.content_type == "application/json" else None))
    await engine.close()
    return answers


def small(answer: ScriptedAnswer) -> EmbeddedEngine:
    return EmbeddedEngine(
        EngineConfig(kv_tokens=2048), model=MODEL, store=MemoryStore(PARAMS), run_token=TOKEN, host="127.0.0.1", script=answer
    )


def test_a_script_that_ends_ends_the_answer() -> None:
    ((_, stops), (_, short), (_, empty)) = asyncio.run(
        ask(
            small(lambda prompt, key: [7, 8, 9] if prompt[0] else []),
            {"input_ids": [1, 2], "sampling_params": {"stop_token_ids": [8]}},
            {"input_ids": [1, 2]},
            {"input_ids": [0, 2]},
        )
    )
    assert (stops["output_ids"], stops["meta_info"]["finish_reason"]) == ([7, 8], {"type": "stop", "matched": 8})
    assert (short["output_ids"], short["meta_info"]["finish_reason"]) == ([7, 8, 9], {"type": "length", "length": 3})
    assert (empty["output_ids"], empty["meta_info"]["finish_reason"]) == ([], {"type": "length", "length": 0})


def test_a_script_outside_the_vocabulary_fails_its_call_alone() -> None:
    wrong, right = asyncio.run(ask(small(lambda prompt, key: [prompt[0], 64 * prompt[0]]), {"input_ids": [1]}, {"input_ids": [0]}))
    assert wrong[0] == 500
    assert (right[0], right[1]["output_ids"]) == (200, [0, 0])


def test_with_a_real_vocabulary_a_later_turn_computes_only_what_is_new() -> None:
    vocabulary = 151_936
    model = qwen3_config.from_model_config(ModelConfig(num_layers=2, max_context=4096), vocabulary)
    engine = EmbeddedEngine(
        EngineConfig(kv_tokens=8192),
        model=model,
        store=MemoryStore({V0: parameters.random_parameters(model, 0)}),
        run_token=TOKEN,
        host="127.0.0.1",
        script=lambda prompt, key: [vocabulary - 1, 0, vocabulary - 2],
    )
    prompt = [n * 37 % vocabulary for n in range(3000)]
    later = [*prompt, vocabulary - 1, 0, vocabulary - 2, *range(40)]
    (_, first), (_, second) = asyncio.run(ask(engine, {"input_ids": prompt}, {"input_ids": later}))
    assert first["output_ids"] == second["output_ids"] == [vocabulary - 1, 0, vocabulary - 2]
    assert all(-20 < entry[0] < -5 for entry in first["meta_info"]["output_token_logprobs"])
    cached = (len(prompt) + 2) // 16 * 16
    assert second["meta_info"]["cached_tokens"] == cached
    assert engine.counters()["prefilled"] == len(prompt) + len(later) - cached
