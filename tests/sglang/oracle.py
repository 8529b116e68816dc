"""What is compared: greedy answers with their log-probs, and the same tokens scored by transformers."""

from dataclasses import dataclass
from pathlib import Path

import torch

from gyre_hpc.engines.sglang.client import Client

PROMPT = [(7 * i * i + 3 * i) % 500 + 5 for i in range(40)]
LONG_PROMPT = [(11 * i * i + 5 * i) % 500 + 5 for i in range(300)]
"""Several chunks of prefill, and pages that end within it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Greedy:
    """One answer at temperature 0."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]
    label: str = ""
    """Version that the server put on it."""


async def greedy(client: Client, prompt: list[int], num_tokens: int = 16) -> Greedy:
    """As the server answers."""
    params = {"temperature": 0, "max_new_tokens": num_tokens, "ignore_eos": True}
    body = {"input_ids": prompt, "sampling_params": params, "return_logprob": True, "logprob_start_len": -1, "stream": True}
    chunks = [chunk async for chunk in client.generate(body)]
    return Greedy(
        prompt=prompt,
        ids=[token for chunk in chunks for token in chunk.ids],
        logprobs=[logprob for chunk in chunks for logprob in chunk.logprobs],
        label=chunks[-1].version,
    )


class Oracle:
    """transformers' model of a Hugging Face folder."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        # Seconds, of whoever only looks which tests there are.
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def gap(self, answer: Greedy, *, doubled: bool = False, changed: bool = False) -> float:
        """How far the answer is off: in any log-prob, or between a token of it and the likeliest one. doubled, changed: controls, with
        positions twice what they are, or with another token in the middle of the prompt."""
        ids = [*answer.prompt, *answer.ids]
        if changed:
            ids[len(answer.prompt) // 2] ^= 1
        positions = torch.arange(len(ids))[None] * (2 if doubled else 1)
        with torch.no_grad():
            logits = self._model(torch.tensor([ids]), position_ids=positions).logits[0]
        rows = logits.float().log_softmax(-1)[len(answer.prompt) - 1 : -1]
        said = rows.gather(1, torch.tensor(answer.ids)[:, None])[:, 0]
        off = (said - torch.tensor(answer.logprobs)).abs().max()
        return max(float(off), float((rows.max(-1).values - said).max()))
