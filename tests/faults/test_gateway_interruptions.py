"""Cells are killed, drained, slow, failing, garbled; weights change: the harness sees one slow, correct answer, whatever it speaks.

The clients are the makers' own and are told to try nothing twice: what they see must need no retry.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.machines.base import TimerFired
from gyre_hpc.protocol.journal import CallBegin, CallProgress
from tests.fakes.gateway_world import EXECUTION, InTurn, World, output_ids, small_config, spelled, until, world
from tests.fakes.sdk_clients import sdk_ask
from tests.fakes.spoken import PROTOCOLS, Reading, Spoken, key, text_of

ALL = pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
LONG = spelled("a rather long answer, disturbed in the middle")
TEXT = bytes(LONG[:-1]).decode()
Disturb = Callable[[World], Awaitable[None]]


@pytest.fixture(autouse=True)
def _bars_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a cell that failed is left alone: too long for as many tests."""
    monkeypatch.setattr("gyre_hpc.machines.call.routing.FIRST_HOLD_S", 0.02)


def live(folder: Path, steps: Callable[[World], Awaitable[None]], **gateway: Any) -> None:
    """Two cells; both would give the same answer, the table names the first one."""

    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            for _ in range(2):
                await here.engine(InTurn(LONG), version="0.1")
            here.route(0)
            await steps(here)

    asyncio.run(run())


def is_one_answer(here: World) -> None:
    """One call, ended once; every position is there once, none was sampled again once it was journaled or received."""
    assert output_ids(here) == LONG
    assert [(end.call, end.finish, end.num_output) for end in here.ends()] == [(f"{EXECUTION}/0", "stop", len(LONG))]
    assert (here.tokens().get("lost", 0), here.tokens().get("resampled", 0)) == (0, 0)


async def seven(here: World) -> None:
    await until(lambda: here.tokens().get("sampled") == 7, "seven tokens")


async def killed(here: World) -> None:
    here.engines[0].faults = ["hang:7"]
    await seven(here)
    await here.engines[0].close()
    here.route(0, 1)


async def killed_and_still_on_the_table(here: World) -> None:
    here.engines[0].faults = ["hang:7"]
    await seven(here)
    here.route(0, 1)
    await here.engines[0].close()


async def reset(here: World) -> None:
    here.engines[0].faults = ["reset:7", "reset:0", "reset:3"]


async def cut(here: World) -> None:
    here.engines[0].faults = ["cut:7", "cut:0"]


async def garbled(here: World) -> None:
    here.engines[0].faults = ["garble:7", "garble:0"]


async def drained(here: World) -> None:
    """Aborted with its tokens kept; then the gate is closed, and the table learns of it last."""
    here.engines[0].faults = ["abort:7", "busy", "busy"]
    await until(lambda: len(here.engines[0].requests) == 3, "the gateway asks the closed gate")
    here.route(1, term=2)


async def drained_before_it_began(here: World) -> None:
    """Its gate closes between the choice and the request (C1): refused, not parked."""
    here.engines[0].faults = ["busy"]
    await until(lambda: here.engines[0].requests, "asked")
    here.route(1, term=2)


async def failing(here: World) -> None:
    here.engines[0].faults = ["fail", "fail", "fail"]


async def failing_in_between(here: World) -> None:
    here.engines[0].faults = ["cut:7", "fail", "fail", "fail"]


async def new_weights(here: World) -> None:
    here.engines[0].faults = ["abort:7"]
    await until(lambda: here.engines[0].requests and not here.engines[0].faults, "asked")
    await seven(here)
    here.engines[0].version = "0.2"
    here.route(0, term=2)


DISTURBANCES: list[Disturb] = [
    killed, killed_and_still_on_the_table, reset, cut, garbled, drained, drained_before_it_began, failing, failing_in_between, new_weights,
]  # fmt: skip


@ALL
@STREAM
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda disturb: disturb.__name__)
def test_the_harness_sees_one_answer(tmp_path: Path, spoken: Spoken, stream: bool, disturb: Disturb) -> None:
    async def steps(here: World) -> None:
        disturbing = asyncio.create_task(disturb(here))
        await asyncio.sleep(0)
        assert await sdk_ask(here.url, spoken, stream=stream) == TEXT
        await disturbing
        is_one_answer(here)
        assert sum(len(engine.requests) for engine in here.engines) > 1, "there was a disturbance"

    live(tmp_path, steps, progress_tokens=4)


@ALL
def test_the_versions_of_an_answer_are_told_span_by_span(tmp_path: Path, spoken: Spoken) -> None:
    async def steps(here: World) -> None:
        disturbing = asyncio.create_task(new_weights(here))
        await asyncio.sleep(0)
        assert await sdk_ask(here.url, spoken, stream=True) == TEXT
        await disturbing
        spans = [span for record in here.records() if isinstance(record, CallProgress) for span in record.spans]
        joined: dict[str, list[int]] = {}
        for span in spans:
            joined.setdefault(str(span.version), []).extend(range(span.start, span.end))
        assert joined == {"0.1": list(range(7)), "0.2": list(range(7, len(LONG)))}

    live(tmp_path, steps)


@ALL
def test_a_slow_cell_is_bridged_by_events_of_the_protocol(tmp_path: Path, spoken: Spoken) -> None:
    async def steps(here: World) -> None:
        here.engines[0].faults = ["late:7"]
        body = orjson.dumps(spoken.body(stream=True))
        reading = Reading(await here.http.post(spoken.url(here), data=body, headers=key()))
        await reading.until(spoken, num_empty=5)
        here.engines[0].gate.set()
        assert text_of(spoken, await reading.rest()) == TEXT
        is_one_answer(here)

    live(tmp_path, steps, keepalive_s=0.03)


@ALL
@STREAM
def test_makers_clients_take_keep_alives_for_nothing(tmp_path: Path, spoken: Spoken, stream: bool) -> None:
    async def steps(here: World) -> None:
        here.engines[0].faults = ["late:7"]
        asked = asyncio.create_task(sdk_ask(here.url, spoken, stream=stream))
        await seven(here)
        (connection,) = here.gateway._connections._open.values()
        beats: list[str] = []
        keep_alive = connection.keep_alive

        async def counted(call: str) -> None:
            await keep_alive(call)
            beats.append(call)

        connection.keep_alive = counted  # type: ignore[method-assign]
        await until(lambda: len(beats) > 3, "some keep-alives passed")
        here.engines[0].gate.set()
        assert await asked == TEXT

    live(tmp_path, steps, keepalive_s=0.02, hold_s=0.02)


@ALL
def test_a_client_that_does_not_stream_hears_nothing_for_a_while_and_then_spaces(tmp_path: Path, spoken: Spoken) -> None:
    """Before it hears anything, an error would still have its own status; afterwards it is JSON all the same."""

    async def steps(here: World) -> None:
        here.engines[0].faults = ["late:7"]
        asked = asyncio.create_task(here.http.post(spoken.url(here), data=orjson.dumps(spoken.body()), headers=key()))
        await seven(here)
        (conn,) = here.gateway._connections._open
        assert not asked.done()
        # gateway.hold_s is over, and then gateway.keepalive_s twice.
        for _ in range(3):
            here.gateway.host.tell(TimerFired(f"alive/{conn}"))
        response = await asked
        reading = Reading(response)
        while len(reading.data) < 3:
            reading.data += await response.content.readany()
        assert (response.content_type, reading.data) == ("application/json", b"   ")
        here.engines[0].gate.set()
        data = await reading.rest()
        assert (spoken.text(orjson.loads(data)), response.status) == (TEXT, 200)

    live(tmp_path, steps)


@ALL
@STREAM
def test_two_equal_questions_at_once_are_two_calls(tmp_path: Path, spoken: Spoken, stream: bool) -> None:
    """Two sub-agents with one task each: none gets the other's answer. Also when a cell is lost under both of them."""

    async def steps(here: World) -> None:
        here.engines[0].faults = ["hang:7", "hang:9"]
        asked = [asyncio.create_task(sdk_ask(here.url, spoken, stream=stream)) for _ in range(2)]
        await until(lambda: here.tokens().get("sampled") == 16, "both are being answered")
        here.route(0, 1)
        await here.engines[0].close()
        assert await asyncio.gather(*asked) == [TEXT, TEXT]
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert sorted(begin.call for begin in begins) == [f"{EXECUTION}/0", f"{EXECUTION}/1"]
        assert begins[0].sampling.key != begins[1].sampling.key, "each draws by itself"
        assert output_ids(here) == output_ids(here, f"{EXECUTION}/1") == LONG

    live(tmp_path, steps)
