"""What an SGLang engine does to its server between calls: sleep, wake, new weights, an adopted server, one that is lost."""

import asyncio
from collections.abc import Callable

import pytest

from gyre_hpc.config.engine_schema import Device
from gyre_hpc.engines.backend import PauseMode
from gyre_hpc.engines.request import BadRequest
from gyre_hpc.engines.sglang.memory import ServerMemory, parse, visible
from gyre_hpc.engines.sglang.pace import Pace
from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.engines.sglang.watch import Watch
from gyre_hpc.protocol.identity import Version
from tests.fakes.scripted_upstream import ScriptedHolder
from tests.fakes.sglang_bench import VERSIONS, Bench, check_truth, run


def test_a_new_server_sleeps_first_and_wakes_with_weights() -> None:
    async def test(one: Bench) -> None:
        assert one.upstream.log == ["flush", "release", "resume", "weights 0.0 and flush"]
        assert one.holder.states == ["changing", "asleep", "changing", "awake"]
        assert one.sender.is_joined

    run(test)


@pytest.mark.parametrize(("noted", "first"), [("asleep", []), ("awake", ["flush", "release"])])
def test_an_adopted_server_is_brought_to_sleep_unless_it_sleeps(noted: str, first: list[str]) -> None:
    async def test(one: Bench) -> None:
        assert one.upstream.aborts == [""], "whatever the one before left"
        assert one.upstream.log == [*first, "resume", "weights 0.0 and flush"]

    run(test, noted=noted)


def test_sleep_waits_until_answered_calls_have_ended_at_the_server() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(50, stop_ids=frozenset(range(50)))
        await one.settle()
        one.upstream.compute(3)
        one.upstream.speak()
        one.upstream.may_abort.clear()
        await one.settle()
        assert call.is_over and not len(one.engine.book) and one.upstream.requests, "the server is ahead of our end"
        sleeping = asyncio.create_task(one.engine.sleep())
        await one.settle()
        assert not sleeping.done()
        one.upstream.may_abort.set()
        await sleeping
        assert one.upstream.log[-2:] == ["flush", "release"] and one.holder.states[-1] == "asleep"
        await one.engine.sleep()
        assert one.upstream.log[-2:] == ["flush", "release"], "once"
        await one.engine.wake(VERSIONS[3])
        assert one.engine.version_text() == "0.3"

    run(test)


def test_a_call_that_slips_in_while_the_server_sleeps_waits_for_its_memory() -> None:
    async def test(one: Bench) -> None:
        await one.engine.sleep()
        call = one.ask(20)
        await one.engine.resume()
        await one.settle()
        assert not one.upstream.requests and not call.is_over
        await one.engine.wake(VERSIONS[1])
        await one.finish()
        assert call.answer.spans == [("0.1", 0, 20)]

    run(test)


def test_a_server_that_is_not_idle_is_never_released() -> None:
    async def test(one: Bench) -> None:
        async def busy(deadline_s: float) -> bool:
            return False

        one.upstream.flush = busy  # type: ignore[method-assign]
        with pytest.raises(ServerLost, match="not idle"):
            await one.engine.sleep()
        assert not one.upstream.is_released and "not idle" in (one.engine.failure() or "")

    run(test)


@pytest.mark.parametrize("keep_kv", [False, True])
def test_new_weights_come_between_two_requests_of_every_call(keep_kv: bool) -> None:
    async def test(one: Bench) -> None:
        calls = [one.ask(20, prompt=(n,)) for n in range(4)]
        await one.settle()
        one.upstream.compute(5)
        one.upstream.speak()
        one.upstream.compute(2)
        await one.engine.update_weights(VERSIONS[1])
        await one.finish()
        for call in calls:
            assert call.answer.spans == [("0.0", 0, 7), ("0.1", 7, 20)]
            assert call.answer.num_retractions == (0 if keep_kv else 1)
            check_truth(call)
        assert one.upstream.log[-1] == ("weights 0.1" if keep_kv else "weights 0.1 and flush")

    run(test, keep_kv=keep_kv)


def test_an_update_during_a_pause_leaves_it_paused() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.engine.pause(PauseMode.in_place)
        await one.engine.update_weights(VERSIONS[1])
        await one.settle()
        assert not one.upstream.requests
        await one.engine.resume()
        await one.finish()
        assert call.answer.spans == [("0.1", 0, 20)]

    run(test)


def test_an_unknown_version_changes_nothing_and_stops_nobody() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.settle()
        with pytest.raises(KeyError):
            await one.engine.update_weights(Version(9, 9))
        with pytest.raises(BadRequest, match="the snapshot store holds"):
            await one.engine.relabel("9.9")
        assert one.upstream.aborts == [] and one.engine.failure() is None
        await one.finish()
        assert call.answer.spans == [("0.0", 0, 20)]

    run(test)


@pytest.mark.parametrize("error", [ServerLost("weights did not arrive whole"), ValueError("not the model's"), asyncio.CancelledError()])
def test_weights_that_break_off_leave_a_lost_engine_and_no_label(error: BaseException) -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.settle()
        one.upstream.compute(5)
        one.upstream.speak()
        one.sender.error = error  # type: ignore[assignment]
        with pytest.raises(type(error)):
            await one.engine.update_weights(VERSIONS[1])
        await one.settle()
        assert "broke off" in (one.engine.failure() or "") and one.holder.states[-1] == "changing"
        assert call.answer.spans == [("0.0", 0, 5)] and call.status == 500
        with pytest.raises(ServerLost, match="broke off"):
            await one.engine.sleep()
        assert not one.upstream.is_released

    run(test)


def test_closing_ends_the_calls_and_then_the_server() -> None:
    async def main() -> None:
        one = Bench()
        await one.engine.start()
        await one.engine.wake(VERSIONS[0])
        call = one.ask(20)
        await one.settle()
        one.upstream.compute(5)
        await one.engine.close()
        assert call.answer.finish is not None and len(call.answer.ids) == 5
        assert not one.upstream.requests and one.upstream.log[-1] == "close" and one.holder.is_stopped

    asyncio.run(main())


def test_a_server_that_is_lost_is_adopted_by_nobody() -> None:
    async def test(one: Bench) -> None:
        one.ask(20)
        await one.settle()
        one.upstream.die()
        await one.settle()
        assert one.holder.states[-1] == "changing"

    run(test)


def test_whatever_fails_at_the_end_the_server_is_ended() -> None:
    async def main() -> None:
        one = Bench()
        await one.engine.start()

        async def fails() -> None:
            raise ServerLost("the group is gone")

        one.sender.close = fails  # type: ignore[method-assign]
        with pytest.raises(ServerLost, match="the group is gone"):
            await one.engine.close()
        assert one.upstream.log[-1] == "close" and one.holder.is_stopped

    asyncio.run(main())


def test_an_engine_that_could_not_start_can_be_closed() -> None:
    async def main() -> None:
        one = Bench()

        async def fails() -> None:
            raise ServerLost("its log ends so")

        one.holder.start = fails  # type: ignore[method-assign,assignment]
        with pytest.raises(ServerLost, match="its log ends so"):
            await one.engine.start()
        await one.engine.close()
        assert one.holder.is_stopped

    asyncio.run(main())


def test_a_silent_server_is_asked_and_lost_when_it_does_not_answer() -> None:
    async def main() -> None:
        heard: list[int | None] = [None, None, 5, 5, 6, 6]
        answers = [True, False]
        asked: list[str] = []
        lost = asyncio.Event()

        async def is_well(deadline_s: float) -> bool:
            asked.append("?")
            return answers.pop(0)

        def on_lost(reason: str) -> None:
            asked.append(reason)
            lost.set()

        def num_heard() -> int | None:
            return heard.pop(0) if len(heard) > 1 else heard[0]

        watch = Watch(num_heard=num_heard, is_well=is_well, on_lost=on_lost, period_s=0.0)
        watch.start()
        await lost.wait()
        await watch.close()
        assert asked[:2] == ["?", "?"] and "no sign of health" in asked[2]

    asyncio.run(main())


def test_the_curve_says_what_was_measured_by_how_many_ran() -> None:
    seconds = [0.0]
    pace = Pace(lambda: seconds[0])

    def passes(duration: float, *tokens: int) -> None:
        seconds[0] += duration
        for number in tokens:
            pace.tokens(number)

    pace.first_token()
    passes(1.0, 10)
    pace.first_token()
    passes(2.0, 15, 15)
    pace.end()
    passes(0.2, 4)
    pace.end()
    passes(50.0)
    assert pace.curve() == pytest.approx({1: 14 / 1.2, 2: 15.0})
    assert pace.num_steps() == 10 + 15 + 4


SMI = "0, GPU-aaaa-1, 80000, 1000\n1, GPU-bbbb-2, 70000, 11000\n"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [80000, 70000]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [70000]),
        ({"CUDA_VISIBLE_DEVICES": "1, 0"}, [70000, 80000]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, [70000]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_device_memory_is_that_of_the_visible_devices(environ: dict[str, str], expected: list[int]) -> None:
    assert [free >> 20 for free, _ in visible(parse(SMI), environ)] == expected


@pytest.mark.parametrize("read", [lambda: parse("no devices were found"), lambda: visible(parse(SMI), {"CUDA_VISIBLE_DEVICES": "4"})])
def test_devices_that_cannot_be_read_are_an_error(read: Callable[[], object]) -> None:
    with pytest.raises(ServerLost, match="nvidia-smi"):
        read()


def test_without_its_program_a_device_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ServerLost, match="nvidia-smi"):
        asyncio.run(ServerMemory(ScriptedHolder(), Device.cuda, rank=0, num_local=1).measure())
