"""Loss terms against numbers worked out one token at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.config.schema import AlgoConfig
from gyre_hpc.train.losses import policy_terms, terms
from gyre_hpc.train.sampled_distribution import kept_tokens, target_logprobs


def _one(logprob, behavior, advantage, algo):
    """(value, gradient with respect to logprob, clipped) of one token, by hand."""
    r = math.exp(logprob - behavior)
    bounded = min(max(r, 1 - algo.clip_low), 1 + algo.clip_high)
    if bounded * advantage < r * advantage:
        return -bounded * advantage, 0.0, True
    weight = min(r, algo.truncated_is) if algo.truncated_is > 0 else r
    return -weight * advantage, -weight * advantage, False


@given(
    logprob=st.floats(-8, -0.01),
    behavior=st.floats(-8, -0.01),
    advantage=st.floats(-3, 3),
    clip=st.tuples(st.floats(0.05, 0.5), st.floats(0.05, 0.5)),
    truncated=st.sampled_from([0.0, 1.1, 1.5, 2.0]),
)
def test_policy_terms_equal_the_brute_force(logprob, behavior, advantage, clip, truncated):
    algo = AlgoConfig(clip_low=clip[0], clip_high=clip[1], truncated_is=truncated)
    ratio = math.exp(logprob - behavior)
    # At the very edge, rounding decides whether the clip holds.
    if min(abs(ratio - (1 - clip[0])), abs(ratio - (1 + clip[1]))) < 1e-6 or abs(advantage) < 1e-6:
        return
    x = torch.tensor([logprob], dtype=torch.float64, requires_grad=True)
    got = policy_terms(x, torch.tensor([behavior], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64), algo)
    (gradient,) = torch.autograd.grad(got.values.sum(), x)
    value, slope, clipped = _one(logprob, behavior, advantage, algo)
    assert got.values.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert gradient.item() == pytest.approx(slope, rel=1e-9, abs=1e-12)
    assert got.is_clipped.item() == clipped


def test_on_policy_the_gradient_is_the_plain_policy_gradient():
    x = torch.tensor([-1.0, -2.0], requires_grad=True)
    advantages = torch.tensor([1.5, -0.5])
    got = policy_terms(x, x.detach(), advantages, AlgoConfig())
    (gradient,) = torch.autograd.grad(got.values.sum(), x)
    assert torch.equal(gradient, -advantages)
    assert not got.is_clipped.any()


def test_truncation_bounds_the_gradient_of_a_stale_token():
    x = torch.tensor([-0.1], requires_grad=True)
    got = policy_terms(x, torch.tensor([-9.0]), torch.tensor([-1.0]), AlgoConfig(truncated_is=2.0))
    (gradient,) = torch.autograd.grad(got.values.sum(), x)
    assert gradient.item() == pytest.approx(2.0)


def test_a_truncation_at_the_edge_of_the_clip_does_not_weaken_it():
    x = torch.tensor([-1.0], requires_grad=True)
    got = policy_terms(x, torch.tensor([-2.0]), torch.tensor([1.0]), AlgoConfig(clip_high=0.5, truncated_is=1.5))
    (gradient,) = torch.autograd.grad(got.values.sum(), x)
    assert gradient.item() == 0.0
    assert got.is_clipped.item()


def test_an_unknown_loss_is_named():
    one = torch.zeros(1)
    with pytest.raises(ValueError, match="'hinge'"):
        terms("hinge", one, one, one, AlgoConfig())


def _distribution(row, algo):
    """Probabilities of one row, token by token."""
    p = np.exp(row / algo.temperature - np.max(row / algo.temperature))
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if algo.top_k > 0:
        order = order[: algo.top_k]
    mass, kept = sum(p[i] for i in order), []
    for i in order:
        kept.append(i)
        if sum(p[j] for j in kept) / mass >= algo.top_p:
            break
    return {i: p[i] / sum(p[j] for j in kept) for i in kept}


@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.3, 0.7, 1.0]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_logprobs_are_those_of_the_distribution_sampled_from(seed, temperature, top_k, top_p):
    algo = AlgoConfig(temperature=temperature, top_p=top_p, top_k=top_k)
    row = np.random.default_rng(seed).normal(size=9) * 2
    expected = _distribution(row, algo)
    targets = torch.tensor(list(expected))
    got = target_logprobs(torch.from_numpy(row).expand(len(targets), -1), targets, algo)
    assert got.exp().tolist() == pytest.approx(list(expected.values()), rel=1e-9)


def test_a_target_outside_the_kept_set_keeps_a_finite_logprob_and_gradient():
    scores = torch.tensor([[5.0, 4.0, -3.0]], requires_grad=True)
    got = target_logprobs(scores, torch.tensor([2]), AlgoConfig(top_k=1))
    got.sum().backward()
    assert torch.isfinite(got).all()
    assert torch.isfinite(scores.grad).all()


def test_equal_probabilities_are_kept_in_id_order():
    assert kept_tokens(torch.zeros(1, 4), 1.0, 2).tolist() == [[True, True, False, False]]
