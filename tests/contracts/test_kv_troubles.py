"""KV that does not get where it should: each trouble costs a prefill, and nobody waits for the dead, the full or the liars."""

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gyre_hpc.cell.kv_wire import Ask, Drop, Room, Take, Taken, encode
from gyre_hpc.engines.base import Block
from gyre_hpc.ports import listen
from gyre_hpc.shell.inbox import make_app
from gyre_hpc.shell.serving import Serving
from gyre_hpc.transport.kv_base import Bytes
from tests.fakes.engine_rig import TOKEN, V0, until
from tests.fakes.kv_cells import HOST, KvCell
from tests.fakes.kv_talk import KINDS, OTHER, PAGE, PROMPT, TRANSPORTS, cached, post, run, same


@TRANSPORTS
def test_a_damaged_block_ends_its_chain_and_no_other(transport: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        def damage(into: Sequence[Bytes]) -> None:
            into[4][17] ^= 1

        there.after_arrival = damage
        answer = await here.generate(PROMPT, 6, "train-0-0-0/1")
        await here.generate(OTHER, 6, "train-0-0-1/1")
        result = await here.give("train-0-0-0/1", "train-0-0-1/1", to="cell-1")
        assert "damaged" in result.trouble
        assert result.num_tokens == 4 * PAGE + 64
        assert (await there.conversations())["train-0-0-0/1"].num_tokens == 4 * PAGE
        there.after_arrival = lambda into: None
        moved = await there.generate(PROMPT + answer["output_ids"], 10, "train-0-0-0/2")
        assert cached(moved) == 4 * PAGE
        same(moved, await here.generate(PROMPT + answer["output_ids"], 10, "train-0-0-0/2"))

    run(test, "embedded", transport)


@KINDS
def test_a_target_nobody_knows_or_that_is_gone_costs_nothing_but_its_conversations(kind: str) -> None:
    with listen(HOST) as closed:
        gone = f"http://{HOST}:{closed.getsockname()[1]}"

    async def test(here: KvCell, there: KvCell) -> None:
        for call in ("train-0-0-0/1", "train-0-0-1/1", "train-0-0-2/1"):
            await here.generate([int(call[10]), *PROMPT], 6, call)
        moves = [("train-0-0-0/1", "cell-8"), ("train-0-0-1/1", "cell-1"), ("train-0-0-2/1", "cell-9")]
        results = await asyncio.gather(*(here.give(call, to=target) for call, target in moves))
        assert [len(result.moved) for result in results] == [0, 1, 0]
        assert results[0].trouble and results[2].trouble
        assert await here.quiet() == 0
        await here.generate(OTHER, 6, "train-0-0-3/1")

    run(test, kind, addresses={"cell-9": gone})


@KINDS
def test_a_target_that_never_answers_costs_no_more_than_the_budget(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        silent = asyncio.Event()
        app = make_app(TOKEN)

        async def hang(request: Any) -> Any:
            await silent.wait()

        app.router.add_post("/kv/wanted", hang)
        server = Serving(app)
        here.client._address_of = {"cell-1": await server.start(listen(HOST))}.get
        await here.generate(PROMPT, 30, "train-0-0-0/1")
        result = await here.give("train-0-0-0/1", to="cell-1", deadline_s=0.3)
        assert result.moved == () and result.trouble
        assert await here.quiet() == 0 and here.kv.num_leases() == 0
        assert cached(await here.generate(PROMPT, 30, "train-0-0-0/2")) == 88
        await server.close()

    run(test, kind)


@pytest.mark.parametrize(
    "answers",
    [
        {"/kv/wanted": b"no msgpack"},
        {"/kv/wanted": encode(Room(1, (0, 99), 11))},
        {"/kv/wanted": encode(Room(1, (3, 2), 11))},
        {"/kv/wanted": encode(Room(1, tuple(range(11)), 12))},
        {"/kv/wanted": encode(Room(1, tuple(range(11)), 11)), "/kv/take": encode(Taken((12,)))},
        {"/kv/wanted": encode(Room(1, tuple(range(11)), 11)), "/kv/take": b"\xc1"},
    ],
)
def test_a_target_that_lies_moves_nothing(answers: dict[str, bytes]) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        app = make_app(TOKEN)

        async def answer(request: Any) -> Any:
            from aiohttp import web

            return web.Response(body=answers.get(request.path, b""))

        app.router.add_post("/kv/{what}", answer)
        server = Serving(app)
        here.client._address_of = {"cell-1": await server.start(listen(HOST))}.get
        await here.generate(PROMPT, 6, "train-0-0-0/1")
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.moved == () and "nonsense" in result.trouble
        assert await here.quiet() == 0 and here.kv.num_leases() == 0
        await server.close()

    run(test, "embedded")


@KINDS
def test_a_reservation_whose_source_died_ends_by_its_deadline(kind: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 6, "train-0-0-0/1")
        free = there.kv.free_tokens()
        _, blocks = await here.kv.lease(("train-0-0-0/1",))
        status, data = await post(there, "/kv/wanted", Ask("cell-0", here.kv.header(), blocks, 0.2))
        room = msgspec.msgpack.decode(data, type=Room)
        assert status == 200 and len(room.wanted) == 11 and there.kv.num_reservations() == 1
        assert there.kv.free_tokens() == free - 88
        await until(lambda: there.kv.num_reservations() == 0)
        assert there.kv.free_tokens() == free
        take = Take(room.reservation, 0, 11, (), 5.0)
        assert "offers" in (await post(there, "/kv/take", take))[1].decode()
        assert cached(await there.generate(PROMPT, 6, "train-0-0-0/1")) == 0

    run(test, kind)


@TRANSPORTS
def test_a_slow_source_holds_up_no_other_one(transport: str) -> None:
    async def test(slow: KvCell, quick: KvCell, target: KvCell) -> None:
        go_on, num_fetches = threading.Event(), itertools.count(1)
        begun: list[int] = []

        def stall() -> None:
            begun.append(next(num_fetches))
            if begun[-1] == 1:
                go_on.wait()

        target.before_fetch = stall
        await slow.generate(PROMPT, 6, "train-0-0-0/1")
        await quick.generate(OTHER, 6, "train-0-0-1/1")
        waiting = asyncio.create_task(slow.give("train-0-0-0/1", to="cell-2"))
        await until(lambda: begun)
        assert (await quick.give("train-0-0-1/1", to="cell-2")).num_tokens == 64
        assert not waiting.done()
        go_on.set()
        assert (await waiting).num_tokens == 88
        assert target.kv.num_reservations() == 0

    run(test, "embedded", transport, configs=({}, {}, {}))


def test_a_source_that_dies_under_a_fetch_leaves_its_pages_unpublished() -> None:
    """It offers, and is gone before anything is read: the target prefills."""

    async def test(here: KvCell, there: KvCell) -> None:
        rank = here.crew.own.kv
        assert rank is not None
        there.before_fetch = rank.close
        answer = await here.generate(PROMPT, 6, "train-0-0-0/1")
        result = await here.give("train-0-0-0/1", to="cell-1")
        assert result.moved == () and result.trouble
        await until(lambda: there.kv.num_reservations() == 0)
        moved = await there.generate(PROMPT + answer["output_ids"], 6, "train-0-0-0/2")
        assert cached(moved) == 0
        same(moved, await here.generate(PROMPT + answer["output_ids"], 6, "train-0-0-0/2"))

    run(test, "embedded")


@KINDS
def test_what_is_leased_is_not_overwritten_however_full_it_gets(kind: str) -> None:
    """264 pages, 11 of them leased; then calls that need every page there is, one after the other."""

    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate(PROMPT, 1, "train-0-0-0/1")
        lease, blocks = await here.kv.lease(("train-0-0-0/1",))
        pages = here.kv.page_bytes()
        before = [bytes(view) for view in pages.leased(lease, range(11))] if pages else []
        for number in range(3):
            await here.generate([number + 1] * 1950, 40, f"train-0-0-1/{number}")
        if pages:
            assert [bytes(view) for view in pages.leased(lease, range(11))] == before
        reservation = await there.kv.reserve(here.kv.header(), blocks)
        assert len(reservation.wanted) == 11
        here.serving.engine.close_admission(2)
        with pytest.raises(AssertionError, match="other cells"):
            await here.serving.engine.sleep()
        await here.kv.release(lease)
        await here.serving.engine.sleep()
        there.serving.engine.close_admission(2)
        with pytest.raises(AssertionError, match="other cells"):
            await there.serving.engine.sleep()
        await there.actions.before_sleep(5.0)
        await there.kv.cancel(reservation.number)
        await there.serving.engine.sleep()

    run(test, kind, configs=({"kv_tokens": 2112}, {}))


@KINDS
def test_a_call_waits_for_pages_that_others_hold_and_then_goes_on(kind: str) -> None:
    """256 pages, all that one call of the longest context needs; 251 are leased."""

    async def test(here: KvCell, there: KvCell) -> None:
        await here.generate([5] * 2010, 1, "train-0-0-0/1")
        lease, _ = await here.kv.lease(("train-0-0-0/1",))
        waiting = asyncio.create_task(here.generate([6] * 2000, 20, "train-0-0-1/1"))
        await until(lambda: here.serving.engine.num_live() == 1)
        await here.kv.conversations()
        assert not waiting.done()
        await here.kv.release(lease)
        assert len((await waiting)["output_ids"]) == 20

    run(test, kind, configs=({"kv_tokens": 2048}, {}))


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/kv/wanted", b"garbage", "Ask"),
        ("/kv/wanted", {"deadline_s": -1.0}, "Ask.deadline_s"),
        ("/kv/wanted", {"deadline_s": float("inf")}, "Ask.deadline_s"),
        ("/kv/wanted", {"blocks": (Block(key=b"short", parent=b"", oldest=V0, num_tokens=PAGE),)}, "Ask.blocks[0].key"),
        ("/kv/wanted", b"\x00" * (17 << 20), "body"),
        ("/kv/take", Take(1, 0, 1, (), 1.0), "Take.offers"),
        ("/kv/drop", b"\x81", "Drop"),
    ],
)
def test_a_bad_body_is_refused_by_field(path: str, body: Any, field: str) -> None:
    async def test(here: KvCell, there: KvCell) -> None:
        data = body
        if isinstance(body, dict):
            data = Ask(**({"source": "cell-0", "header": there.kv.header(), "blocks": (), "deadline_s": 1.0} | body))
        status, text = await post(there, path, data)
        assert status == 400 and text.decode().startswith(field), text
        assert there.kv.num_reservations() == 0
        assert (await post(there, "/kv/drop", Drop(77)))[0] == 200

    run(test, "embedded")
