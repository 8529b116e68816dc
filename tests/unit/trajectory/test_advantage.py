"""Group baselines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.config.schema import Advantage
from gyre_hpc.trajectory.advantage import group_advantages, scores_of, shuffle_scores, shuffled_advantages
from gyre_hpc.trajectory.base import ScoredExecution


def execution(index: int, state: str, score: float | None) -> ScoredExecution:
    return ScoredExecution(execution=f"train-0-0-{index}", state=state, score=score, num_targets=3)


score_lists = st.lists(st.integers(0, 10).map(lambda n: n / 10), min_size=1, max_size=16)


def by_name(scores: list[float]) -> dict[str, float]:
    return {f"train-0-0-{index}": score for index, score in enumerate(scores)}


@given(score_lists, st.sampled_from(Advantage))
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_scores(scores: list[float], kind: Advantage) -> None:
    advantages = list(group_advantages(by_name(scores), kind).values())
    assert sum(advantages) == pytest.approx(0, abs=1e-9)
    for a, x in zip(scores, advantages, strict=True):
        for b, y in zip(scores, advantages, strict=True):
            assert (a < b) == (x < y)


@given(score_lists)
def test_with_std_the_spread_of_a_group_is_one(scores: list[float]) -> None:
    advantages = list(group_advantages(by_name(scores), Advantage.grpo).values())
    variance = sum(value**2 for value in advantages) / len(advantages)
    assert variance == pytest.approx(1.0) or (len(set(scores)) == 1 and advantages == [0.0] * len(scores))


def test_equal_scores_give_exactly_zero_without_dividing_by_zero() -> None:
    assert set(group_advantages(by_name([0.1 + 0.2, 0.3, 0.3]), Advantage.grpo).values()) == {0.0}


@given(score_lists, st.sampled_from(Advantage), st.sampled_from(["unscored", "infra_error"]), st.sampled_from([None, 0.0]))
def test_a_sibling_without_a_score_changes_nobodys_advantage(scores: list[float], kind: Advantage, state: str, score: float | None) -> None:
    """Fault D5."""
    counted = [execution(index, "partial" if index % 2 else "scored", value) for index, value in enumerate(scores)]
    alone = group_advantages(scores_of(counted), kind)
    assert group_advantages(scores_of([execution(99, state, score), *counted]), kind) == alone


def test_a_counted_execution_must_have_a_score() -> None:
    with pytest.raises(ValueError, match="train-0-0-1 is partial but its score is None"):
        scores_of([execution(1, "partial", None)])
    with pytest.raises(ValueError, match="nan"):
        scores_of([execution(1, "scored", float("nan"))])


@given(score_lists, st.text(max_size=5))
def test_shuffled_scores_are_the_same_scores_dealt_out_anew(scores: list[float], seed: str) -> None:
    dealt = shuffle_scores(by_name(scores), seed)
    assert sorted(dealt.values()) == sorted(scores)
    assert set(dealt) == set(by_name(scores))
    assert dealt == shuffle_scores(dict(reversed(by_name(scores).items())), seed), "the order of the input does not matter"


def test_every_place_is_equally_likely_under_shuffling() -> None:
    scores = by_name([1.0, 0.0, 0.0, 0.0])
    hits = [0] * 4
    for seed in range(2000):
        hits[[shuffle_scores(scores, str(seed))[name] for name in scores].index(1.0)] += 1
    assert all(400 < hit < 600 for hit in hits)


@given(score_lists, st.sampled_from(Advantage), st.text(max_size=5))
def test_advantages_of_the_control_share_nothing_with_the_true_ones(scores: list[float], kind: Advantage, seed: str) -> None:
    true = group_advantages(by_name(scores), kind)
    control = shuffled_advantages(by_name(scores), kind, seed)
    assert control == shuffled_advantages(dict(reversed(by_name(scores).items())), kind, seed)
    assert sum(control.values()) == pytest.approx(0, abs=1e-9)
    assert sum(control[name] * true[name] for name in true) == pytest.approx(0, abs=1e-9)
    dealt = group_advantages(shuffle_scores(by_name(scores), seed), kind)
    rest = {name: dealt[name] - control[name] for name in true}
    assert all(rest[a] * true[b] == pytest.approx(rest[b] * true[a], abs=1e-9) for a in true for b in true), "only the true part is gone"


def test_the_control_still_pushes_every_execution_and_none_more_often_up_than_down() -> None:
    scores = by_name([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    deals = [shuffled_advantages(scores, Advantage.grpo, str(seed)) for seed in range(2000)]
    for name in scores:
        pushes = [deal[name] for deal in deals]
        assert abs(sum(pushes)) / len(pushes) < 0.08, "four standard errors"
        assert sum(push**2 for push in pushes) / len(pushes) > 0.5
