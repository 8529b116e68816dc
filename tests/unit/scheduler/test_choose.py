"""Properties of decide over all modes, and the cases of rule `press`."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gyre_hpc.config.schema import SchedulerConfig, SchedulerMode
from gyre_hpc.scheduler.base import EngineCurve, Facts
from gyre_hpc.scheduler.choose import decide
from gyre_hpc.scheduler.waterlevel import FULL_BATCH_THETA, cells_needed, concave, marginal

CURVE = EngineCurve(half=8.0)
BASE = Facts(
    now=1000.0,
    cells=8,
    training=0,
    core_training=False,
    live=64,
    groups_per_batch=16,
    groups_ready=0,
    batch_full=False,
    batch_open=False,
    gate_closed=False,
    micro_batches_waiting=0,
    ready_work_s=0.0,
    cells_busy_training=0,
    update_in_progress=False,
    switch_s=12.0,
    pull_s=5.0,
    last_lend=-math.inf,
    curve=CURVE,
)
ELASTIC = SchedulerConfig(lead_floor_s=180.0, lead_factor=20.0, dwell_s=300.0)


@st.composite
def curves(draw: st.DrawFn) -> EngineCurve:
    if draw(st.booleans()):
        return EngineCurve(half=draw(st.floats(0.5, 64)))
    xs = sorted(draw(st.sets(st.integers(1, 64), min_size=1, max_size=6)))
    return EngineCurve(points=tuple((float(x), draw(st.floats(1, 1000))) for x in xs))


@st.composite
def situations(draw: st.DrawFn) -> Facts:
    cells = draw(st.integers(1, 12))
    core_training, core_usable = draw(st.booleans()), draw(st.booleans())
    # A usable core that does not train is one of the cells that serve.
    training = draw(st.integers(1 if core_training else 0, cells if core_training or not core_usable else cells - 1))
    full = draw(st.booleans())
    waiting = draw(st.integers(0, 40))
    return replace(
        BASE,
        cells=cells,
        training=training,
        core_training=core_training,
        core_usable=core_usable,
        live=draw(st.integers(0, 200)),
        groups_ready=16 if full else draw(st.integers(0, 15)),
        batch_full=full,
        batch_open=draw(st.booleans()),
        gate_closed=draw(st.booleans()),
        micro_batches_waiting=waiting,
        ready_work_s=waiting * draw(st.floats(0, 500)),
        cells_busy_training=draw(st.integers(0, training)),
        update_in_progress=full and draw(st.booleans()),
        last_lend=draw(st.sampled_from([-math.inf, 950.0, 100.0])),
        kv_tokens_live=draw(st.integers(0, 5000)),
        kv_tokens_per_cell=draw(st.sampled_from([0, 500, 5000])),
        evaluating=draw(st.booleans()),
        window_complete=draw(st.booleans()),
        curve=draw(curves()),
    )


configs = st.builds(
    SchedulerConfig,
    mode=st.sampled_from(SchedulerMode),
    theta0=st.floats(0, 1),
    lead_factor=st.sampled_from([0.0, 20.0]),
    lead_floor_s=st.sampled_from([0.0, 180.0]),
    dwell_s=st.sampled_from([0.0, 300.0]),
    split=st.integers(1, 11),
)


@given(situations(), configs)
def test_want_lies_between_none_and_all_cells_and_never_aborts_a_micro_batch(facts: Facts, config: SchedulerConfig) -> None:
    want = decide(facts, config).want
    assert 0 <= want <= facts.cells
    assert want >= facts.cells_busy_training


@given(situations(), configs)
def test_no_lend_takes_the_last_rollout_cell_from_live_executions_unless_said(facts: Facts, config: SchedulerConfig) -> None:
    decision = decide(facts, config)
    if facts.live > 0 and decision.want > facts.training and decision.want == facts.cells:
        assert decision.pause_rollout
        assert decision.forced or config.mode in (SchedulerMode.colocate, SchedulerMode.colocate_carry)


@given(situations(), configs)
def test_nobody_is_lent_without_a_core_or_while_evaluating(facts: Facts, config: SchedulerConfig) -> None:
    if facts.evaluating or not facts.core_usable:
        assert decide(facts, config).want == facts.cells_busy_training


@given(situations(), configs)
def test_constant_facts_reach_a_fixed_point_without_oscillation(facts: Facts, config: SchedulerConfig) -> None:
    seen = []
    for _ in range(2 * facts.cells + 3):
        want = decide(facts, config).want
        seen.append(facts.training)
        if want == facts.training:
            return
        if want > facts.training:  # the core goes in first
            facts = replace(facts, training=facts.training + 1, core_training=True, last_lend=facts.now)
        else:  # and out last
            facts = replace(facts, training=facts.training - 1, core_training=facts.core_training and facts.training > 1)
    pytest.fail(f"oscillates: {seen}")


@given(situations(), configs)
def test_never_a_state_in_which_every_cell_waits(facts: Facts, config: SchedulerConfig) -> None:
    facts = replace(facts, core_usable=True, core_training=facts.training > 0, evaluating=False, cells_busy_training=0)
    decision = decide(facts, config)
    rollout_can = facts.live > 0 or not facts.gate_closed
    if facts.batch_full and not rollout_can:
        assert decision.want >= 1, "only training can go on"
    if facts.batch_full and facts.gate_closed and facts.cells == 1 and config.mode is not SchedulerMode.colocate:
        assert decision.want == 1, "a complete batch behind a closed gate is trained, even on one cell"
    if decision.want == facts.cells and facts.live > 0:
        assert facts.batch_full or facts.update_in_progress, "executions wait only for training that can be done"


@given(situations(), st.integers(0, 50))
def test_elastic_lends_no_more_when_more_executions_are_live(facts: Facts, more: int) -> None:
    busier = replace(facts, live=facts.live + more)
    if facts.cells > 1:
        assert decide(busier, ELASTIC).want <= decide(facts, ELASTIC).want


@given(situations(), st.integers(0, 15), st.integers(0, 20), st.floats(0, 5000))
def test_elastic_lends_no_less_when_more_data_is_ready(facts: Facts, groups: int, waiting: int, work_s: float) -> None:
    fed = replace(
        facts,
        groups_ready=min(16, facts.groups_ready + groups),
        micro_batches_waiting=facts.micro_batches_waiting + waiting,
        ready_work_s=facts.ready_work_s + work_s,
    )
    assert decide(fed, ELASTIC).want >= decide(facts, ELASTIC).want


@given(situations(), st.floats(0, 1), st.floats(0, 1))
def test_elastic_lends_no_less_with_a_higher_threshold(facts: Facts, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert decide(facts, dataclasses.replace(ELASTIC, theta0=low)).want <= decide(facts, dataclasses.replace(ELASTIC, theta0=high)).want


@given(situations(), st.integers(1, 11))
def test_async_keeps_its_split_under_every_load(facts: Facts, split: int) -> None:
    facts = replace(facts, cells=12, training=split, core_training=True, cells_busy_training=0, core_usable=True, evaluating=False)
    assert decide(facts, SchedulerConfig(mode=SchedulerMode.async_split, split=split)).want == split


def test_strict_colocate_waits_for_the_last_execution_then_trains_on_all_cells() -> None:
    config = SchedulerConfig(mode=SchedulerMode.colocate)
    full = replace(BASE, batch_full=True, groups_ready=16, gate_closed=True, micro_batches_waiting=9, ready_work_s=9e3)
    assert decide(replace(full, live=1), config).want == 0
    done = decide(replace(full, live=0, window_complete=True), config)
    assert (done.want, done.pause_rollout) == (8, False)


def test_carry_pauses_executions_for_a_full_batch_and_resumes_them() -> None:
    config = SchedulerConfig(mode=SchedulerMode.colocate_carry)
    full = replace(BASE, batch_full=True, groups_ready=16, micro_batches_waiting=9)
    assert decide(replace(full, batch_full=False, groups_ready=15), config).want == 0
    paused = decide(full, config)
    assert (paused.want, paused.pause_rollout, paused.forced) == (8, True, False)
    assert decide(replace(full, training=8, core_training=True, update_in_progress=True), config).want == 8
    assert decide(replace(BASE, training=8, core_training=True), config).want == 0


def test_elastic_lends_only_for_data_that_pays_for_the_switch() -> None:
    lead = 20.0 * (12.0 + 5.0)
    some = replace(BASE, live=4, groups_ready=4, micro_batches_waiting=9)
    assert decide(replace(some, ready_work_s=lead - 1), ELASTIC).want == 0
    assert decide(replace(some, ready_work_s=lead * 3), ELASTIC).want == 3


def test_elastic_keeps_cells_whose_rollout_value_exceeds_the_threshold() -> None:
    fed = replace(BASE, groups_ready=0, micro_batches_waiting=99, ready_work_s=1e6)
    assert decide(replace(fed, live=64), ELASTIC).want == 0, "r(8) is about .25 and more: no cell to spare"
    assert decide(replace(fed, live=8), ELASTIC).want == 7
    loaded = replace(fed, live=640)
    assert decide(loaded, ELASTIC).want == 0
    assert decide(replace(loaded, groups_ready=16, batch_full=True), ELASTIC).want == 7, "a full batch overrides"


def test_core_stays_while_its_batch_is_open() -> None:
    idle = replace(BASE, training=1, core_training=True, batch_open=True)
    assert decide(idle, ELASTIC).want == 1
    assert decide(replace(idle, batch_open=False), ELASTIC).want == 0


def test_dwell_holds_a_lent_cell_while_data_waits() -> None:
    seen = replace(BASE, live=640, training=3, core_training=True, micro_batches_waiting=4, ready_work_s=40.0, last_lend=900.0)
    assert decide(seen, ELASTIC).reason == "dwell"
    assert decide(seen, ELASTIC).want == 3
    assert decide(replace(seen, now=1300.0), ELASTIC).want == 0
    assert decide(replace(seen, micro_batches_waiting=0, ready_work_s=0.0), ELASTIC).want == 0


def test_kv_of_live_executions_bounds_the_lend_except_for_a_full_batch() -> None:
    seen = replace(BASE, live=2, groups_ready=8, micro_batches_waiting=99, ready_work_s=1e6, kv_tokens_live=600, kv_tokens_per_cell=100)
    assert (decide(seen, ELASTIC).want, decide(seen, ELASTIC).reason) == (2, "kv")
    assert decide(replace(seen, batch_full=True), ELASTIC).want == 7


def test_a_single_cell_is_forced_to_train_only_behind_a_closed_gate() -> None:
    single = replace(BASE, cells=1, live=3, batch_full=True, groups_ready=16, micro_batches_waiting=3)
    assert decide(single, ELASTIC).want == 0
    forced = decide(replace(single, gate_closed=True), ELASTIC)
    assert (forced.want, forced.forced, forced.pause_rollout) == (1, True, True)
    applying = replace(single, gate_closed=True, training=1, core_training=True, update_in_progress=True)
    assert decide(applying, ELASTIC).want == 1, "the update is finished first"
    assert decide(replace(applying, update_in_progress=False, batch_full=False, groups_ready=0), ELASTIC).want == 0


def test_a_full_batch_with_nothing_to_train_still_gets_its_core() -> None:
    empty = replace(BASE, batch_full=True, groups_ready=16)
    assert decide(empty, ELASTIC).want == 1


def test_satellites_without_a_core_let_the_core_in() -> None:
    orphan = replace(BASE, training=2, core_training=False, batch_open=True, cells_busy_training=2)
    assert decide(orphan, ELASTIC).want == 3
    assert decide(replace(orphan, cells=2, training=1, cells_busy_training=0), ELASTIC).want == 0, "no room: the idle one leaves first"


@given(curves(), st.integers(1, 300), st.integers(1, 40))
def test_marginal_value_never_grows_with_more_rollout_cells(curve: EngineCurve, live: int, cells: int) -> None:
    smooth = concave(curve)
    assert marginal(smooth, live, cells) >= marginal(smooth, live, cells + 1) - 1e-9
    assert 0.0 <= marginal(smooth, live, cells) <= 1.0


@given(curves())
def test_the_concave_curve_lies_above_the_measured_one_and_keeps_its_top(curve: EngineCurve) -> None:
    smooth = concave(curve)
    assert smooth.saturated() == pytest.approx(curve.saturated())
    for x, y in curve.points:
        assert smooth.throughput(x) >= y * (1 - 1e-9)


@settings(max_examples=50)
@given(curves(), st.integers(0, 300), st.integers(0, 30), st.floats(0, 2))
def test_cells_needed_is_the_first_level_below_the_threshold(curve: EngineCurve, live: int, cells: int, theta: float) -> None:
    smooth = concave(curve)
    by_hand = next((r for r in range(cells) if marginal(smooth, live, r + 1) <= theta + 1e-9), cells)
    assert cells_needed(smooth, live, cells, theta) == by_hand


def test_the_half_saturation_model_gives_the_value_of_the_notes() -> None:
    x, cells = 1.0, 400
    live = round(x * 8.0 * cells)
    assert marginal(CURVE, live, cells) == pytest.approx((x / (1 + x)) ** 2, rel=0.01)
    assert decide(replace(BASE, batch_full=True), ELASTIC).waterlevel.theta == FULL_BATCH_THETA
