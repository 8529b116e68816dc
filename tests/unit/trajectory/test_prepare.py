"""Groups -> micro-batches."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.config.schema import Advantage, AlgoConfig, TrainerConfig
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.micro_batch import MicroBatch, Sequence, decode, encode
from gyre_hpc.protocol.tensors import unpack_floats, unpack_ids
from gyre_hpc.trajectory.admission import admit
from gyre_hpc.trajectory.base import Call, ScoredExecution
from gyre_hpc.trajectory.packing import on_policy_mask
from gyre_hpc.trajectory.prepare import PreparedGroup, PrepareSettings, prepare_group, prepare_warm_start
from gyre_hpc.trajectory.tree import CallTree
from tests.unit.trajectory.random_trees import drawn_calls, make_call

SETTINGS = PrepareSettings(j_max=3, micro_batch_tokens=40, advantage=Advantage.grpo_no_std)
VERSION = Version(0, 2)


def name(index: int) -> str:
    return f"train-0-0-{index}"


def scored(index: int, score: float | None, state: str = "scored") -> ScoredExecution:
    return ScoredExecution(execution=name(index), state=state, score=score, num_targets=0)


def prepare(calls: dict[str, list[Call]], group: list[ScoredExecution], settings: PrepareSettings = SETTINGS) -> PreparedGroup:
    return prepare_group(calls, group, settings, update=7, version=VERSION, first_ordinal=10)


def sequences(micro_batches: tuple[MicroBatch, ...]) -> list[Sequence]:
    return [sequence for one in micro_batches for sequence in one.sequences]


def line(index: int, *outputs: int) -> list[Call]:
    """One unbranched execution."""
    return [
        make_call(ordinal, ordinal - 1 if ordinal else None, output=output, execution=name(index)) for ordinal, output in enumerate(outputs)
    ]


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, list[Call]], list[ScoredExecution]]:
    size = draw(st.integers(1, 4))
    calls = {name(index): draw(drawn_calls(execution=name(index), most=9)) for index in range(size)}
    states = [draw(st.sampled_from(["scored", "partial", "unscored", "infra_error"])) for _ in range(size)]
    score = st.integers(0, 4).map(lambda n: n / 4)
    return calls, [scored(i, draw(score) if state in ("scored", "partial") else None, state) for i, state in enumerate(states)]


@given(groups())
def test_every_target_of_an_admitted_path_is_trained_exactly_once(group: tuple[dict[str, list[Call]], list[ScoredExecution]]) -> None:
    calls, executions = group
    trained: Counter[int] = Counter()
    found = prepare(calls, executions)
    for sequence in sequences(found.micro_batches):
        weights, ids = unpack_floats(sequence.weights), unpack_ids(sequence.ids)
        logprobs = unpack_floats(sequence.logprobs)
        assert len(ids) == len(weights) == len(logprobs) == len(sequence.on_policy)
        assert weights[0] == 0
        for token, logprob in zip(ids[weights > 0].tolist(), logprobs[weights > 0].tolist(), strict=True):
            trained[(sequence.execution, token)] += 1  # type: ignore[index]
            assert logprob == pytest.approx(-token / 1e6, rel=1e-6), "each target keeps its own behavior log-prob"
        assert not logprobs[weights == 0].any()
    expected: Counter[int] = Counter()
    for one in executions:
        if one.state not in ("scored", "partial"):
            continue
        tree = CallTree(calls[one.execution])
        for call in {call for path in admit(tree, SETTINGS.j_max).trajectories for call in path.calls}:
            if tree.calls[call].delivered:
                for token in tree.calls[call].output_ids.tolist()[0 if len(tree.context(call)) else 1 :]:
                    expected[(one.execution, token)] = 1  # type: ignore[index]
    assert trained == expected
    assert found.num_targets == sum(expected.values())


@given(groups())
def test_the_weights_of_an_execution_sum_to_one_or_to_nothing(group: tuple[dict[str, list[Call]], list[ScoredExecution]]) -> None:
    found = prepare(*group)
    totals: Counter[str] = Counter()
    for sequence in sequences(found.micro_batches):
        totals[sequence.execution] += float(unpack_floats(sequence.weights).sum(dtype=np.float64))  # type: ignore[assignment]
    for one in found.executions:
        assert totals[one.execution] == pytest.approx(1.0 if one.is_trained else 0.0)
        assert one.num_trajectories <= SETTINGS.j_max
    assert found.num_trained == len(totals)


@given(groups(), st.integers(1, 60))
def test_packing_keeps_all_within_the_budget_with_running_ids(
    group: tuple[dict[str, list[Call]], list[ScoredExecution]], budget: int
) -> None:
    settings = replace(SETTINGS, micro_batch_tokens=budget)
    found = prepare(*group, settings)
    assert [one.id for one in found.micro_batches] == [f"7:{10 + number}" for number in range(len(found.micro_batches))]
    for one in found.micro_batches:
        assert (one.update, one.version, one.loss) == (7, VERSION, "policy")
        assert one.num_tokens == sum(len(sequence.ids) // 4 for sequence in one.sequences)
        assert one.num_tokens <= budget or len(one.sequences) == 1
        assert one.num_targets == sum(int((unpack_floats(sequence.weights) > 0).sum()) for sequence in one.sequences)
        assert decode(encode(one)) == one
    key = lambda sequence: (sequence.execution, sequence.ids, sequence.weights)
    alone = sequences(prepare(*group, replace(settings, micro_batch_tokens=1)).micro_batches)
    assert sorted(sequences(found.micro_batches), key=key) == sorted(alone, key=key)
    assert found == prepare(*group, settings), "deterministic"


@given(drawn_calls(execution=name(0)))
def test_on_policy_targets_have_the_updates_version_and_kv_no_older(calls: list[Call]) -> None:
    for call in calls:
        mask = on_policy_mask(call, VERSION)
        for position in range(len(call.output_ids)):
            sampled = next(span.version for span in call.spans if span.start <= position < span.end)
            oldest = next(version for end, version in call.oldest_kv if position < end)
            assert mask[position] == (sampled == VERSION and oldest == VERSION)
    found = prepare({name(0): calls}, [scored(0, 1.0)])
    flagged = [np.frombuffer(sequence.on_policy, np.uint8) for sequence in sequences(found.micro_batches)]
    for flags, sequence in zip(flagged, sequences(found.micro_batches), strict=True):
        assert not flags[unpack_floats(sequence.weights) == 0].any()
    assert found.num_on_policy == sum(int(flags.sum()) for flags in flagged)
    assert sum(count for _, count in found.target_versions) == found.num_targets


def test_the_first_token_of_a_sequence_is_no_target_however_it_came_to_have_no_context() -> None:
    for calls in (
        [make_call(0, None, suffix=0, execution=name(0))],
        [make_call(0, None, suffix=0, output=0, execution=name(0)), make_call(1, 0, suffix=0, execution=name(0))],
    ):
        found = prepare({name(0): calls}, [scored(0, 1.0)])
        (sequence,) = sequences(found.micro_batches)
        assert unpack_floats(sequence.weights).tolist() == [0.0, 0.5, 0.5]
        assert (found.executions[0].num_targets, found.num_targets) == (2, 2)


def test_the_denominator_is_the_executions_own_target_count() -> None:
    """Faults D1 and D2: 100 and 900 targets weigh the same, and weights do not change with the cut into micro-batches."""
    calls = {name(0): line(0, 100), name(1): line(1, 900)}
    group = [scored(0, 1.0), scored(1, 0.0)]
    for budget in (200, 5000):
        found = sequences(prepare(calls, group, replace(SETTINGS, micro_batch_tokens=budget)).micro_batches)
        weights = {one.execution: unpack_floats(one.weights).max() for one in found}
        assert weights == {name(0): np.float32(1 / 100), name(1): np.float32(1 / 900)}


def test_the_weight_of_an_execution_does_not_grow_with_its_branches() -> None:
    """Fault D3: the same execution as one or as five trajectories."""
    plain = line(0, 4, 4)
    branching = [make_call(0, None, output=4, execution=name(0)), *(make_call(n, 0, output=4, execution=name(0)) for n in range(1, 6))]
    for calls, count in ((plain, 1), (branching, 5)):
        found = prepare({name(0): calls, name(1): line(1, 3)}, [scored(0, 1.0), scored(1, 0.0)], replace(SETTINGS, j_max=5))
        mine = [one for one in sequences(found.micro_batches) if one.execution == name(0)]
        assert len(mine) == count
        assert sum(float(unpack_floats(one.weights).sum()) for one in mine) == pytest.approx(1.0)
        assert found.executions[0].is_branching == (count > 1)


def test_the_baseline_counts_executions_not_rows() -> None:
    """Fault D4: a branching execution moves the mean no more than a plain one."""
    branching = [make_call(0, None, execution=name(0)), make_call(1, 0, execution=name(0)), make_call(2, 0, execution=name(0))]
    found = prepare({name(0): branching, name(1): line(1, 3)}, [scored(0, 1.0), scored(1, 0.0)])
    assert [one.advantage for one in found.executions] == [0.5, -0.5]
    assert {one.advantage for one in sequences(found.micro_batches) if one.execution == name(0)} == {0.5}


def test_an_unscored_sibling_shifts_nothing_and_trains_nothing() -> None:
    """Fault D5."""
    calls = {name(index): line(index, 3) for index in range(4)}
    group = [scored(0, 1.0), scored(1, 0.0), scored(2, None, "unscored"), scored(3, None, "infra_error")]
    found = prepare(calls, group)
    assert [one.advantage for one in found.executions] == [0.5, -0.5, 0.0, 0.0]
    assert {one.execution for one in sequences(found.micro_batches)} == {name(0), name(1)}
    assert found.num_trained == 2


def test_a_scored_execution_without_targets_counts_in_the_baseline_but_not_in_s() -> None:
    found = prepare({name(0): line(0, 3)}, [scored(0, 1.0), scored(1, 0.0)])
    assert [one.is_trained for one in found.executions] == [True, False]
    assert found.executions[0].advantage == 0.5
    assert found.num_trained == 1


def test_a_group_without_spread_still_counts_in_s() -> None:
    found = prepare({name(index): line(index, 3) for index in range(2)}, [scored(0, 0.5), scored(1, 0.5, "partial")])
    assert (found.num_trained, found.has_spread) == (2, False)
    assert {one.advantage for one in sequences(found.micro_batches)} == {0.0}


def test_shuffled_rewards_change_advantages_only() -> None:
    calls = {name(index): line(index, 3) for index in range(8)}
    group = [scored(index, index / 8) for index in range(8)]
    plain, shuffled = prepare(calls, group), prepare(calls, group, replace(SETTINGS, shuffle_rewards=True))
    true, control = ({one.execution: one.advantage for one in found.executions} for found in (plain, shuffled))
    assert {one.execution: one.advantage for one in sequences(shuffled.micro_batches)} == control
    assert any(control.values())
    assert sum(true[one] * control[one] for one in true) == pytest.approx(0, abs=1e-9), "nothing of the truth"
    assert [one.score for one in shuffled.executions] == [one.score for one in group]
    assert [one.ids for one in sequences(shuffled.micro_batches)] == [one.ids for one in sequences(plain.micro_batches)]


def test_facts_of_an_execution_name_its_oldest_version_and_leaves() -> None:
    old = [VersionSpan(Version(0, 1), 0, 2), VersionSpan(Version(0, 2), 2, 3)]
    calls = [make_call(0, None, execution=name(0), spans=old, oldest_kv=[(3, Version(0, 1))])]
    found = prepare({name(0): calls}, [scored(0, 1.0)])
    assert found.executions[0].oldest_version == Version(0, 1)
    assert found.target_versions == ((Version(0, 1), 2), (Version(0, 2), 1))
    assert found.num_on_policy == 0, "all tokens attended to KV of the older version"


def test_warm_start_trains_every_execution_by_cross_entropy() -> None:
    calls = {name(index): line(index, 3, 4) for index in range(3)}
    micro_batches = prepare_warm_start(calls, SETTINGS, Version(0, 0), first_ordinal=5)
    assert [one.id for one in micro_batches] == [f"warm:{5 + number}" for number in range(len(micro_batches))]
    assert {one.loss for one in micro_batches} == {"cross_entropy"}
    assert {(one.execution, one.advantage) for one in sequences(micro_batches)} == {(name(index), 1.0) for index in range(3)}
    assert sum(float(unpack_floats(one.weights).sum()) for one in sequences(micro_batches)) == pytest.approx(3.0)


def test_settings_come_from_the_configuration() -> None:
    settings = PrepareSettings.of(AlgoConfig(j_max=2, shuffle_rewards=True), TrainerConfig(micro_batch_tokens=99), seed=4)
    assert (settings.j_max, settings.micro_batch_tokens, settings.shuffle_rewards, settings.seed) == (2, 99, True, 4)
