"""The study of routers: the same figures every time, and books that close."""

import dataclasses

import pytest

from benchmarks.routing.cell import Ask, Cell, Engine
from benchmarks.routing.routers import CacheAware, Ours, RoundRobin, Router, Thresholds
from benchmarks.routing.scenarios import LARGE, MOVING, OURS, ROUTERS, SMALL, scenarios
from benchmarks.routing.study import Leaving, Study
from benchmarks.routing.workload import Call, Execution, heavy_tailed, recorded
from gyre_hpc.simulation.kernel import Kernel

OFTEN = Leaving(every_s=0.5, away_s=0.4)


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_the_same_study_gives_the_same_outcome(router: str):
    def once() -> object:
        return Study(recorded(48), ROUTERS[router](), SMALL, cells=4, live=24, leaving=OFTEN).run()

    assert once() == once()


@pytest.mark.parametrize("router", [Ours, CacheAware, RoundRobin])
def test_every_call_ends_and_every_load_is_given_back_whatever_leaves(router: type[Router]):
    executions, made = recorded(96), router()
    engine = dataclasses.replace(SMALL, move_tokens_s=10_000, move_budget_s=0.1)
    told = Study(executions, made, engine, cells=3, live=32, leaving=OFTEN).run()
    assert told.calls == sum(len(one.calls) for one in executions)
    assert not any(made.loads.values())
    if isinstance(made, Ours):
        assert not any(made._prefilling.values())


def test_one_cell_finds_whatever_the_workload_shares():
    executions = heavy_tailed(8)
    alone = Study(executions, RoundRobin(), LARGE, cells=1, live=1).run()
    shared = sum(sum(num for _, num in call.prefix) for one in executions for call in one.calls)
    prompts = sum(call.num_prompt for one in executions for call in one.calls)
    assert alone.hit_rate == pytest.approx(shared / prompts, abs=0.02)


def test_moved_kv_is_found_where_it_went():
    executions = heavy_tailed(24)
    leaving = Leaving(every_s=60.0, away_s=50.0)
    without, moved = (Study(executions, Ours(), engine, cells=3, live=24, leaving=leaving).run() for engine in (LARGE, MOVING))
    assert moved.moved_tokens > 0 == without.moved_tokens
    assert moved.hit_rate > without.hit_rate


def test_the_workload_of_a_seed_is_the_same_and_has_long_contexts():
    assert heavy_tailed(16, 3) == heavy_tailed(16, 3) != heavy_tailed(16, 4)
    prompts = [call.num_prompt for one in heavy_tailed(64) for call in one.calls]
    assert max(prompts) > 100_000 > sorted(prompts)[len(prompts) // 2]


def test_the_recording_has_whole_groups_and_contexts_that_grow():
    executions = recorded(960)
    assert {sum(one.group == group for one in executions) for group in {one.group for one in executions}} == {8}
    for one in executions:
        for call in one.calls:
            if call.parent >= 0:
                assert call.num_prompt > one.calls[call.parent].num_prompt


def cell(engine: Engine, ended: list[Ask]) -> tuple[Kernel, Cell]:
    kernel = Kernel(0)
    return kernel, Cell("cell-0", engine, kernel, lambda cell, ask: None, lambda cell, ask: ended.append(ask))


def ask(name: str, prompt: int, output: int) -> Ask:
    call = Call(prefix=(), own=name, suffix=prompt, output=output, tool_s=0.0, parent=-1)
    return Ask(execution=0, place=0, call=call, since=0.0, group="")


def test_a_cell_prefills_one_after_another_and_decodes_at_its_curve():
    ended: list[Ask] = []
    kernel, one = cell(Engine(places=2, prefill_tokens_s=100, decode_tokens_s=30, half=2, kv_tokens=1000), ended)
    first, second, third = ask("a", 100, 10), ask("b", 200, 1), ask("c", 50, 1)
    for each in (first, second, third):
        one.take(each)
    kernel.run(lambda: len(ended) == 3, 1e6, 1000)
    assert (first.first, second.first) == (1.0, 3.0)
    assert ended[0] is first and kernel.now == pytest.approx(3.6), "10 tokens at 30 / (1 + 2) a second, from 1 s on: 2 s, before b decodes"
    assert third.began == pytest.approx(3.0), "after the one before it"


def test_what_was_used_longest_ago_is_forgotten_first_from_the_end_of_its_chain():
    _, one = cell(Engine(places=1, prefill_tokens_s=1, decode_tokens_s=1, half=1, kv_tokens=100), [])
    one.keep((("root", 40), ("leaf", 40)))
    one.keep((("other", 30),))
    assert one.match((("root", 40), ("leaf", 40))) == 40
    assert one.match((("other", 30),)) == 30


def test_a_cache_aware_router_follows_the_longest_match_until_queues_differ_too_much():
    kernel = Kernel(0)
    cells = [Cell(f"cell-{n}", SMALL, kernel, lambda cell, ask: None, lambda cell, ask: None) for n in range(2)]
    router = CacheAware(Thresholds(cache=0.3, balance_abs=2, balance_rel=1.5))
    one = ask("a", 100, 1)
    for _ in range(3):
        assert router.route(one, cells) is cells[0]
        router.sent(one, cells[0])
    assert router.route(one, cells) is cells[1], "3 calls against none"


def test_scenarios_have_names_of_their_own():
    names = [scenario.name for scenario in scenarios()]
    assert len(set(names)) == len(names)
    assert all(scenario.routers[0] == OURS for scenario in scenarios())
    assert isinstance(recorded(1)[0], Execution)
