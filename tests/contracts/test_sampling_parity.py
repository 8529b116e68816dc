"""Engine and trainer give one token one log-prob: the ratio of an on-policy token is 1 (fault A10)."""

import json

import pytest
import torch

from gyre_hpc.config.schema import AlgoConfig
from gyre_hpc.engines.embedded.sampling import sample
from gyre_hpc.engines.request import parse_generate
from gyre_hpc.train.sampled_distribution import target_logprobs


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("top_k", [0, 1, 5])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 1.0])
def test_a_sampled_token_has_the_same_logprob_in_engine_and_trainer(temperature, top_k, top_p):
    logits = torch.randn(64, 50, generator=torch.Generator().manual_seed(3)) * 3
    params = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    keys = [{"key": f"{row:02x}", "position": 0} for row in range(64)]
    bodies = [{"input_ids": [1], "sampling_params": {**params, "custom_params": key}} for key in keys]
    requests = [parse_generate(json.dumps(body).encode(), 512, 50) for body in bodies]
    ids, logprobs = sample(logits, requests, [0] * 64)
    again = target_logprobs(logits, torch.tensor(ids), AlgoConfig(**params))
    assert again.tolist() == pytest.approx(logprobs, abs=1e-5)
