"""KV that moves between engines: what goes on elsewhere is what would have gone on here."""

import asyncio
from typing import Any

import pytest

from tests.fakes.engine_rig import V0, V1
from tests.fakes.kv_cells import KvCell
from tests.fakes.kv_talk import KINDS, OTHER, PAGE, PROMPT, TRANSPORTS, cached, run, same


@KINDS
@TRANSPORTS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_live_call_goes_on_elsewhere_as_it_would_have_here(kind: str, transport: str, temperature: float) -> None:
    async def test(here: KvCell, there: KvCell, untouched: KvCell) -> None:
        whole = await untouched.generate(PROMPT, 200, "train-0-0-0/4", temperature=temperature)
        custom = {"key": "aa", "position": 0, "call": "train-0-0-0/4"}
        (task,) = await here.serving.begin(here.serving.body(PROMPT, 200, custom_params=custom, temperature=temperature))
        here.serving.engine.close_admission(2)
        listed = (await here.conversations())["train-0-0-0/4"]
        assert listed.is_live and listed.num_tokens >= 88
        result = await here.give("train-0-0-0/4", to="cell-1")
        assert result.moved == here.all_to("cell-1", "train-0-0-0/4") and not result.trouble
        assert result.num_tokens >= listed.num_tokens and result.seconds > 0
        assert here.serving.engine.num_live() == 1
        await here.serving.engine.abort_all({"train-0-0-0/4": "cell-1"})
        _, begun = await task
        assert begun["meta_info"]["finish_reason"]["moved_to"] == "cell-1"
        done = begun["output_ids"]
        rest = await there.generate(
            PROMPT + done, 200 - len(done), "train-0-0-0/4", position=len(done), temperature=temperature
        )  # fmt: skip
        assert cached(rest) == result.num_tokens
        same(rest, whole, len(done))
        assert await here.quiet() == 0 and here.kv.num_leases() == 0 and there.kv.num_reservations() == 0

    run(test, kind, transport, configs=({}, {}, {}))


@KINDS
@TRANSPORTS
def test_a_conversation_that_waits_for_its_tool_moves_and_only_what_is_lacking_travels(kind: str, transport: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        first = await here.generate(PROMPT, 30, "train-0-0-0/1")
        tools = PROMPT + first["output_ids"] + [7, 7, 7]
        await there.generate(PROMPT[:40] + [1], 1, "train-0-0-1/1")
        listed = await here.conversations()
        assert not listed["train-0-0-0/1"].is_live and listed["train-0-0-0/1"].num_tokens == 112
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.moved == here.all_to("cell-1", "train-0-0-0/1")
        assert result.num_tokens == 112 - 40
        assert there.num_fetched == (72 // PAGE if kind == "embedded" else 0)
        moved = await there.generate(tools, 20, "train-0-0-0/2")
        local = await here.generate(tools, 20, "train-0-0-0/2")
        assert cached(moved) == cached(local) == 112
        same(moved, local)

    run(test, kind, transport)


@KINDS
def test_conversations_move_on_from_where_they_came_to(kind: str) -> None:
    async def test(one: KvCell, two: KvCell, three: KvCell) -> None:
        answer = await one.generate(PROMPT, 30, "train-0-0-0/1")
        await one.give("train-0-0-0/1", to="cell-1")
        assert (await two.conversations())["train-0-0-0/1"].num_tokens == 112
        result = await two.give("train-0-0-0/1", to="cell-2")
        assert result.num_tokens == 112
        assert cached(await three.generate(PROMPT + answer["output_ids"], 5, "train-0-0-0/2")) == 112

    run(test, kind, configs=({}, {}, {}))


@KINDS
def test_nothing_travels_twice(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 6, "train-0-0-0/1")
        await here.generate(PROMPT[:40] + OTHER, 6, "train-0-0-1/1")
        result = await here.give("train-0-0-0/1", "train-0-0-1/1", to="cell-1")
        assert result.num_tokens == 88 + 64 and len(result.moved) == 2
        again = await here.give("train-0-0-1/1", "train-0-0-0/1", to="cell-1")
        assert again.num_tokens == 0 and len(again.moved) == 2 and not again.trouble

    run(test, kind)


@KINDS
def test_a_target_of_another_version_takes_nothing(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await there.serving.engine.update_weights(V1)
        await here.generate(PROMPT, 30, "train-0-0-0/1")
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.moved == () and result.num_tokens == 0 and "another version" in result.trouble
        assert (there.num_fetched, await here.quiet()) == (0, 0)

    run(test, kind)


@KINDS
@pytest.mark.parametrize("change", [{"page_size": 16}, {"keep_kv": True}])
def test_a_target_of_another_layout_takes_nothing(kind: str, change: dict[str, Any]) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 30, "train-0-0-0/1")
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.moved == () and "layout" in result.trouble and there.num_fetched == 0

    run(test, kind, configs=({}, change))


@KINDS
def test_a_target_that_stops_serving_takes_nothing(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 30, "train-0-0-0/1")
        there.serving.engine.close_admission(2)
        assert "takes no calls" in (await here.give("train-0-0-0/1", to="cell-1")).trouble
        await there.serving.engine.sleep()
        assert there.kv.free_tokens() == 0
        assert "takes no calls" in (await here.give("train-0-0-0/1", to="cell-1")).trouble

    run(test, kind)


@KINDS
def test_an_update_while_pages_come_publishes_none_of_them(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 1, "train-0-0-0/1")
        _, blocks = await here.kv.lease(("train-0-0-0/1",))
        reservation = await there.kv.reserve(here.kv.header(), blocks)
        assert len(reservation.wanted) == len(blocks) == 11
        await there.serving.engine.update_weights(V1)
        assert await there.kv.publish(reservation.number, tuple(range(11))) == ()
        await there.kv.cancel(reservation.number)
        answer = await there.generate(PROMPT, 1, "train-0-0-0/1")
        assert (cached(answer), answer["meta_info"]["oldest_kv_version"]) == (0, str(V1))

    run(test, kind)


def test_pages_say_at_their_new_place_how_old_they_are() -> None:
    """keep_kv: pages of V0 are reused under V1, here and there."""

    async def test(here: KvCell, there: KvCell) -> None:
        answer = await here.generate(PROMPT, 30, "train-0-0-0/1")
        for cell in (here, there):
            await cell.serving.engine.update_weights(V1)
        assert (await here.give("train-0-0-0/1", to="cell-1")).num_tokens == 112
        meta = (await there.generate(PROMPT + answer["output_ids"], 5, "train-0-0-0/2"))["meta_info"]
        assert (meta["cached_tokens"], meta["oldest_kv_version"], meta["weight_version"]) == (112, str(V0), str(V1))

    run(test, "embedded", configs=({"keep_kv": True},) * 2)


@KINDS
def test_a_full_target_takes_what_it_has_room_for(kind: str) -> None:
    """264 pages, 256 of which are kept for a call of the longest context."""

    async def test(here: KvCell, there: KvCell) -> None:
        answer = await here.generate(PROMPT, 6, "train-0-0-0/1")
        assert there.kv.free_tokens() == 64
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.num_tokens == 64 and "room for 8 of 11" in result.trouble
        assert result.moved == here.all_to("cell-1", "train-0-0-0/1")
        assert cached(await there.generate(PROMPT + answer["output_ids"], 5, "train-0-0-0/2")) == 64
        assert there.kv.free_tokens() == 64

    run(test, kind, configs=({}, {"kv_tokens": 2112}))


@KINDS
def test_without_pages_nothing_is_listed_or_moved(kind: str) -> None:
    from tests.fakes.engine_rig import rig

    async def test() -> None:
        async with rig(kind) as serving:
            assert serving.engine.kv is None and serving.engine.capabilities.kv == "none"

    asyncio.run(test())
