"""Counter-based draws: reproducible, in the right proportions, from the distribution whose log-probs are told."""

import dataclasses

import pytest
import torch

from gyre_hpc.engines.counter_random import uniform
from gyre_hpc.engines.embedded.sampling import sample, score
from gyre_hpc.engines.request import Request

LOGITS = torch.tensor([0.0, 3.0, -2.0, 1.0, 2.5, 1.0])
PLAIN = Request(
    rid="r",
    input_ids=(1,),
    temperature=1.0,
    top_p=1.0,
    top_k=0,
    max_new_tokens=9,
    stop_ids=frozenset(),
    key=b"k",
    position=0,
    return_logprob=True,
    stream=False,
    incremental=False,
)


def draws(request: Request, count: int) -> tuple[list[int], list[float]]:
    return sample(LOGITS.repeat(count, 1), [request] * count, list(range(count)))


def test_uniform_is_a_fixed_function_of_key_and_position() -> None:
    assert uniform(b"key", 3) == uniform(b"key", 3)
    assert len({uniform(key, n) for key in (b"a", b"b") for n in range(100)}) == 200
    values = [uniform(b"x", n) for n in range(4000)]
    assert all(0 <= value < 1 for value in values)
    assert sum(values) / len(values) == pytest.approx(0.5, abs=0.02)


def test_the_number_drawn_depends_on_position_plus_tokens_so_far() -> None:
    moved = dataclasses.replace(PLAIN, position=5)
    assert sample(LOGITS[None], [moved], [2]) == sample(LOGITS[None], [PLAIN], [7])
    assert draws(PLAIN, 50) == draws(PLAIN, 50)


@pytest.mark.parametrize(
    "request_", [PLAIN, dataclasses.replace(PLAIN, temperature=0.5), dataclasses.replace(PLAIN, temperature=2.0, top_k=3)]
)
def test_frequencies_are_those_of_the_told_distribution(request_: Request) -> None:
    tokens, logprobs = draws(request_, 4000)
    told = dict(zip(tokens, logprobs, strict=True))
    for token, logprob in told.items():
        assert tokens.count(token) / 4000 == pytest.approx(torch.tensor(logprob).exp().item(), abs=0.03)
    assert sum(torch.tensor(list(told.values()), dtype=torch.float64).exp()) == pytest.approx(1, abs=0.02)


def test_temperature_scales_the_told_logprobs() -> None:
    tokens, logprobs = draws(dataclasses.replace(PLAIN, temperature=0.7), 20)
    expected = torch.log_softmax(LOGITS.double() / 0.7, -1)
    assert logprobs == pytest.approx([expected[token].item() for token in tokens], abs=1e-9)


def test_top_k_and_top_p_cut_and_renormalise() -> None:
    tokens, logprobs = draws(dataclasses.replace(PLAIN, top_k=2), 300)
    expected = torch.log_softmax(LOGITS[[1, 4]].double(), -1).tolist()
    assert set(tokens) == {1, 4}
    assert {round(lp, 9) for lp in logprobs} == {round(lp, 9) for lp in expected}

    probabilities = LOGITS.double().softmax(-1)
    just_above_two = (probabilities[1] + probabilities[4] + 0.001).item()
    tokens, _ = draws(dataclasses.replace(PLAIN, top_p=just_above_two), 300)
    assert set(tokens) == {1, 3, 4}, "of two equal tokens the smaller id is kept"
    tokens, logprobs = draws(dataclasses.replace(PLAIN, top_p=0.01), 20)
    assert (set(tokens), set(logprobs)) == ({1}, {0.0})


def test_temperature_zero_is_greedy() -> None:
    tokens, logprobs = draws(dataclasses.replace(PLAIN, temperature=0.0), 5)
    assert set(tokens) == {1}
    assert logprobs[0] == pytest.approx(torch.log_softmax(LOGITS, -1)[1].item(), abs=1e-6)


def test_a_token_without_mass_is_never_drawn() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    for count in range(200):
        assert sample(logits, [PLAIN], [count])[0] == [1]


def test_a_prescribed_token_is_scored_under_the_uncut_distribution() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)) * 4
    changes = [{"temperature": 0.7, "top_k": 1}, {"top_p": 0.01}, {"temperature": 0.0}]
    requests = [dataclasses.replace(PLAIN, **change) for change in changes]
    told = score(logits, requests, [3, 4, 5])
    for row, (temperature, token) in enumerate([(0.7, 3), (1.0, 4), (1.0, 5)]):
        assert told[row] == pytest.approx(float(torch.log_softmax(logits[row].double() / temperature, 0)[token]), abs=1e-12)
