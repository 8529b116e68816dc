"""The model of an engine's speed: rates, shares, prefill times, order, and exact continuation. Time is an argument."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.request import Request
from gyre_hpc.engines.timed_core import TimedCall, TimedCore, pseudo_random_source
from gyre_hpc.engines.timed_speed import Speed
from gyre_hpc.protocol.identity import Version

SPEED = Speed(tokens_per_s=100.0, half=4.0, prefill_tokens_per_s=1000.0, time_scale=1.0)


def core(speed: Speed = SPEED, **change: object) -> TimedCore:
    sizes: dict[str, object] = {"kv_tokens": 4096, "page_size": 16, "max_batch": 64, "keep_kv": False, "chunk": 10, "max_context": 512}
    return TimedCore(speed, source=pseudo_random_source(50), **(sizes | change))  # type: ignore[arg-type]


def call(number: int, num_tokens: int, prompt: int = 100, position: int = 0, stop: frozenset[int] = frozenset()) -> TimedCall:
    return TimedCall(
        number=number,
        request=Request(
            rid=str(number),
            input_ids=tuple([number] * prompt),
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_new_tokens=num_tokens,
            stop_ids=stop,
            key=b"key",
            position=position,
            return_logprob=True,
            stream=True,
            incremental=True,
        ),
    )


def finishes(engine: TimedCore) -> dict[int, tuple[float, list[int]]]:
    """Run to the end: time and output of each call."""
    ends: dict[int, tuple[float, list[int]]] = {}
    outputs: dict[int, list[int]] = {}
    while (due := engine.next_due()) is not None:
        engine.advance(due)
        taken, engine.out = engine.out, []
        for piece in taken:
            outputs.setdefault(piece.number, []).extend(piece.ids)
            if piece.finish is not None:
                ends[piece.number] = (due, outputs[piece.number])
    return ends


def ids_of(pieces: list[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.ids]


def test_a_call_alone_takes_its_prefill_and_its_tokens() -> None:
    engine = core()
    engine.add(0.0, call(0, 40))
    ((end, output),) = finishes(engine).values()
    assert end == pytest.approx(100 / 1000 + 40 / (100 / 5))
    assert len(output) == 40


def test_calls_share_the_throughput_of_the_curve() -> None:
    engine = core()
    for number in range(4):
        engine.add(0.0, call(number, 50, prompt=16))
    ends = finishes(engine)
    for end, output in ends.values():
        assert end == pytest.approx(0.016 + 50 / (100 / 8))
        assert len(output) == 50


def test_a_late_call_slows_the_first_from_then_on() -> None:
    engine = core()
    engine.add(0.0, call(0, 100, prompt=1))
    engine.add(1.0, call(1, 1000, prompt=1))
    begin, alone, shared = 0.001, 100 / 5, 100 / 6
    made_alone = (1.001 - begin) * alone
    assert finishes(engine)[0][0] == pytest.approx(1.001 + (100 - made_alone) / shared)


def test_time_scale_stretches_everything() -> None:
    slow = core(Speed(tokens_per_s=100.0, half=4.0, prefill_tokens_per_s=1000.0, time_scale=3.0))
    fast = core()
    for engine in (slow, fast):
        engine.add(0.0, call(0, 40))
    assert finishes(slow)[0][0] == pytest.approx(3 * finishes(fast)[0][0])


def test_an_abort_keeps_what_was_made_and_a_continuation_goes_on() -> None:
    whole, cut = core(), core()
    whole.add(0.0, call(0, 60))
    expected = finishes(whole)[0][1]
    cut.add(0.0, call(0, 60))
    cut.abort(1.37, 0, "test")
    kept = ids_of(cut.out)
    assert len(kept) == int((1.37 - 0.1) * 20)
    assert cut.out[-1].finish is not None and cut.out[-1].finish["type"] == "abort"
    assert cut.num_live == 0 and cut.num_used_tokens == 0
    cut.out = []
    cut.add(2.0, call(1, 60 - len(kept), position=len(kept)))
    assert kept + finishes(cut)[1][1] == expected


def test_an_update_splits_the_tokens_at_its_instant() -> None:
    engine = core()
    engine.add(0.0, call(0, 60))
    engine.update(1.1, Version(0, 3))
    assert sum(len(piece.ids) for piece in engine.out) == 20
    assert {span[0] for piece in engine.out for span in piece.spans} == {"0.0"}
    engine.out = []
    later: list[Piece] = []
    while (due := engine.next_due()) is not None:
        engine.advance(due)
        later += engine.out
        engine.out = []
    assert {span[0] for piece in later for span in piece.spans} == {"0.3"}
    assert later[0].start == 20 and later[-1].num_retractions == 1


def test_waiting_calls_begin_in_order_as_room_comes() -> None:
    engine = core(max_batch=2)
    for number in range(4):
        engine.add(0.0, call(number, 20))
    assert engine.num_admitted == 2
    ends = finishes(engine)
    assert sorted(ends, key=lambda number: ends[number][0]) == [0, 1, 2, 3]
    assert ends[2][0] > ends[1][0]


def test_kv_that_is_full_makes_calls_wait_never_hang() -> None:
    engine = core(kv_tokens=256)
    for number in range(5):
        engine.add(0.0, call(number, 100))
    assert engine.num_admitted == 1
    assert len(finishes(engine)) == 5
    assert engine.num_used_tokens == 0


def test_a_paused_engine_stands_still() -> None:
    engine = core()
    engine.add(0.0, call(0, 40))
    engine.set_paused(0.05, True)
    assert engine.next_due() is None
    engine.set_paused(5.05, False)
    assert finishes(engine)[0][0] == pytest.approx(5.0 + 0.1 + 40 / 20)


def test_known_prefixes_cost_no_prefill() -> None:
    engine = core()
    engine.add(0.0, call(0, 10, prompt=161))
    finishes(engine)
    before = dict(engine.counters)
    engine.add(10.0, call(0, 10, prompt=161))
    assert engine.counters["cached"] - before["cached"] == 160
    assert engine.counters["prefilled"] - before["prefilled"] == 1
    engine.out = []


def test_a_stop_token_ends_the_call() -> None:
    free = core()
    free.add(0.0, call(0, 60))
    output = finishes(free)[0][1]
    stop = output[23]
    engine = core()
    engine.add(0.0, call(0, 60, stop=frozenset({stop})))
    assert finishes(engine)[0][1] == output[: output.index(stop) + 1]


def test_a_stop_string_is_found_across_chunks_and_a_new_version() -> None:
    def decode(ids: Sequence[int]) -> str:
        return "".join(f"{token}," for token in ids)

    engine = core(decode=decode)
    engine.add(0.0, call(0, 100))
    ((_, output),) = finishes(engine).values()
    stop = decode(output[38:42])
    for moment in (None, 0.7, 2.05):
        engine = core(decode=decode)
        stopped = call(0, 100)
        stopped.request = replace(stopped.request, stop=(stop,))
        engine.add(0.0, stopped)
        before: list[Piece] = []
        if moment is not None:
            engine.update(moment, Version(0, 1))
            before, engine.out = engine.out, []
        ((_, rest),) = finishes(engine).values()
        assert ids_of(before) + rest == output[:42]
