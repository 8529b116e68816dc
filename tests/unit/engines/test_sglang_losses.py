"""An SGLang engine that is lost at bad moments, steps that are tried again, waits that end."""

import asyncio
import errno
from typing import Any

import pytest

from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.errors import UserError
from tests.fakes.sglang_bench import VERSIONS, Bench, run


def test_an_engine_that_is_lost_before_a_call_took_its_first_step_can_be_closed() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        one.upstream.die()
        assert one.engine._attempts is not None
        one.engine._attempts.lose("connection reset")
        await one.settle()
        assert call.status == 500 and len(one.engine._attempts) == 0

    run(test)


def full_disk(state: str) -> None:
    raise OSError(errno.ENOSPC, "no space left")


def test_a_lost_server_ends_its_calls_also_where_that_cannot_be_noted() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        await one.settle()
        one.holder.note = full_disk  # type: ignore[method-assign]
        one.upstream.die()
        await one.settle()
        assert call.status == 500 and call.is_over and not one.upstream.requests

    run(test)


def test_a_change_that_cannot_be_noted_is_one_that_broke_off() -> None:
    async def test(one: Bench) -> None:
        noted = one.holder.note
        one.holder.note = lambda state: noted(state) if state == "changing" else full_disk(state)  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no space left"):
            await one.engine.update_weights(VERSIONS[1])
        assert "broke off" in (one.engine.failure() or "")

    run(test)


def test_a_server_that_is_lost_in_the_midst_of_a_change_stays_so() -> None:
    async def test(one: Bench) -> None:
        send = one.sender.send

        async def loses_meanwhile(*args: Any, **more: Any) -> None:
            await send(*args, **more)
            assert one.engine._attempts is not None
            one.engine._attempts.lose("no sign of health")

        one.sender.send = loses_meanwhile  # type: ignore[method-assign]
        with pytest.raises(ServerLost, match="no sign of health"):
            await one.engine.update_weights(VERSIONS[1])
        assert one.holder.states[-1] == "changing", "nobody adopts it"

    run(test)


@pytest.mark.parametrize("noted", ["asleep", "awake"])
def test_a_server_found_running_that_does_not_do_what_it_is_asked_is_adopted_by_nobody_again(noted: str) -> None:
    async def main() -> None:
        one = Bench(noted)

        async def hangs(upstream: Any) -> None:
            raise ServerLost("/init_weights_update_group: TimeoutError")

        one.sender.join = hangs  # type: ignore[method-assign]
        with pytest.raises(ServerLost, match="init_weights_update_group"):
            await one.engine.start()
        assert one.holder.states == ["changing"], "each further incarnation would wait for it in vain"
        await one.engine.close()

    asyncio.run(main())


def test_a_server_found_asleep_is_noted_as_such_again() -> None:
    async def main() -> None:
        one = Bench("asleep")
        await one.engine.start()
        assert one.holder.states == ["changing", "asleep"]
        await one.engine.close()

    asyncio.run(main())


def test_a_server_with_less_kv_than_one_call_needs_is_of_no_use() -> None:
    async def main(least: int) -> None:
        one = Bench(least_kv=least)
        try:
            await one.engine.start()
        finally:
            await one.engine.close()

    asyncio.run(main(4096))
    with pytest.raises(UserError, match=r"engine\.kv_tokens=4096.* may need 4097.*mem-fraction-static"):
        asyncio.run(main(4097))


def test_a_wake_whose_figures_were_lost_may_be_asked_for_again() -> None:
    async def test(one: Bench) -> None:
        call = one.ask(20)
        before = list(one.upstream.log)
        assert await one.engine.wake(VERSIONS[0]) and one.upstream.log == before
        await one.finish()
        assert call.answer.spans == [("0.0", 0, 20)]
        with pytest.raises(AssertionError, match="serves 0.0"):
            await one.engine.wake(VERSIONS[1])

    run(test)


def test_who_waits_for_answered_calls_to_end_does_not_wait_for_those_that_come_meanwhile() -> None:
    async def test(one: Bench) -> None:
        one.ask(50, stop_ids=frozenset(range(50)))
        await one.settle()
        one.upstream.compute(3)
        one.upstream.may_abort.clear()
        one.upstream.speak()
        await one.settle()
        assert not len(one.engine.book) and one.upstream.requests, "the server is ahead of our end"
        flushing = asyncio.create_task(one.engine.flush_cache())
        await one.settle()
        assert not flushing.done()
        late = one.ask(20)
        await one.settle()
        one.upstream.may_abort.set()
        await one.settle()
        assert flushing.done() and not flushing.result() and not late.is_over
        await one.finish()

    run(test)
