"""The wall clock is set by hours, in mid-call and between two starts of a shard: it is only written down, nothing is timed by it."""

import asyncio
import time
from pathlib import Path

import orjson
import pytest

from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress
from tests.fakes.gateway_world import EXECUTION, InTurn, World, output_ids, small_config, spelled, until, world
from tests.fakes.spoken import PROTOCOLS, Reading, Spoken, ask, key, text_of

HOURS_S = 3600.0
LONG = spelled("an answer that takes its time")


class WallClock:
    """time.time() with an offset; the monotonic clock goes on as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset_s, self._real = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: self._real() + self.offset_s)


def times(here: World) -> list[float]:
    return [record.time for record in here.records() if isinstance(record, CallBegin | CallProgress | CallEnd)]


@pytest.mark.parametrize("spoken", PROTOCOLS, ids=lambda spoken: spoken.name)
@pytest.mark.parametrize("jump_s", [-7 * HOURS_S, 7 * HOURS_S], ids=["back", "forward"])
def test_a_clock_set_in_mid_call_changes_neither_the_answer_nor_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoken: Spoken, jump_s: float
) -> None:
    clock = WallClock(monkeypatch)

    async def run() -> None:
        # All deadlines lie within the jump.
        config = small_config(
            keepalive_s=0.05, hold_s=0.05, call_deadline_s=HOURS_S, abandon_s=HOURS_S, unread_s=HOURS_S, progress_tokens=4
        )
        async with world(tmp_path, config) as here:
            engine = await here.engine(InTurn(LONG))
            engine.faults = ["late:8"]
            here.route(0)
            body = orjson.dumps(spoken.body(stream=True))
            reading = Reading(await here.http.post(spoken.url(here), data=body, headers=key()))
            await until(lambda: len(output_ids(here)) == 8, "eight tokens are journaled")
            clock.offset_s = jump_s
            await reading.until(spoken, num_empty=3)
            here.route(0)
            engine.gate.set()
            assert text_of(spoken, await reading.rest()) == bytes(LONG[:-1]).decode()
            assert len(engine.requests) == 1
            told = times(here)
            assert told == sorted(told), "records keep their order"
            assert told[-1] - told[0] < HOURS_S

    asyncio.run(run())


@pytest.mark.parametrize("jump_s", [-7 * HOURS_S, 7 * HOURS_S], ids=["back", "forward"])
def test_a_shard_that_starts_at_another_hour_goes_on_from_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    clock = WallClock(monkeypatch)
    begun, again = LONG, spelled("and then")

    async def run() -> None:
        async with world(tmp_path) as here:
            engine = await here.engine(InTurn(begun, again))
            here.route(0)
            texts = [await ask(here, spoken, f"hello in {spoken.name}") for spoken in PROTOCOLS]
            sampled = engine.num_sampled
            await here.gateway.close()
            clock.offset_s = jump_s
            await here.start(incarnation=2)
            here.route(0)
            assert [await ask(here, spoken, f"hello in {spoken.name}") for spoken in PROTOCOLS] == texts
            assert engine.num_sampled == sampled, "what is recorded is not sampled again"
            assert [end.call for end in here.ends()] == [f"{EXECUTION}/{ordinal}" for ordinal in range(3)]

    asyncio.run(run())
