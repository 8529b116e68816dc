"""Calls of ours as requests to SGLang: each token once, under its own version, whatever happens in between."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.engines.backend import PauseMode
from tests.fakes.sglang_bench import VERSIONS, Bench, check_truth, run

DEEDS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 25)),
    st.tuples(st.just("let_in"), st.just(0)),
    st.tuples(st.just("compute"), st.integers(1, 9)),
    st.tuples(st.just("speak"), st.integers(0, 3)),
    st.tuples(st.just("abort"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.sampled_from(PauseMode)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("update"), st.just(0)),
    st.tuples(st.just("turns"), st.integers(1, 6)),
)


@given(deeds=st.lists(DEEDS, max_size=40), keep_kv=st.booleans())
@settings(max_examples=120, deadline=None)
def test_in_any_order_of_events_each_token_comes_once_under_its_version(deeds: list[tuple[str, object]], keep_kv: bool) -> None:
    async def test(one: Bench) -> None:
        steps = iter(VERSIONS[1:])
        changes: list[asyncio.Task[None]] = []
        aborted = set()
        for deed, argument in deeds:
            match deed, argument:
                case "ask", int(number):
                    one.upstream.lets_in = bool(number % 2)
                    one.ask(number, prompt=(len(one.calls), 7))
                case "let_in", _:
                    one.upstream.let_in()
                case "compute", int(number):
                    one.upstream.compute(number)
                case "speak", int(number):
                    one.upstream.speak(repeat=number)
                case "abort", int(number) if number < len(one.calls):
                    one.engine.abort(one.calls[number], "aborted by the test")
                    aborted.add(number)
                case "pause", PauseMode() as mode:
                    if mode is PauseMode.abort:
                        aborted.update(range(len(one.calls) + 40))
                    changes.append(asyncio.create_task(one.engine.pause(mode)))
                case "resume", _:
                    await one.engine.resume()
                case "update", _:
                    changes.append(asyncio.create_task(one.engine.update_weights(next(steps))))
                case "turns", int(number):
                    for _ in range(number):
                        await asyncio.sleep(0)
        one.upstream.lets_in = True
        one.upstream.let_in()
        while not all(change.done() for change in changes):
            await one.settle()
            one.upstream.let_in()
        for change in changes:
            change.result()
        await one.engine.resume()
        await one.finish()
        await one.settle()
        assert one.engine.failure() is None
        assert one.upstream.num_lost == 0 and not one.upstream.requests
        assert one.engine.counters()["sampled"] == one.upstream.num_computed == sum(len(call.answer.ids) for call in one.calls)
        for number, call in enumerate(one.calls):
            check_truth(call)
            assert call.answer.finish is not None
            if number not in aborted:
                assert len(call.answer.ids) == call.request.max_new_tokens

    run(test, keep_kv=keep_kv)
