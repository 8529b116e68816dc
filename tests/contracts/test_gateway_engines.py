"""The gateway and the engines of this package speak the same language: role switches move calls, tokens stay what they were."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.scripted import ScriptedEngine
from gyre_hpc.engines.timed import TimedEngine
from gyre_hpc.machines.base import Received
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.protocol.tensors import unpack_floats, unpack_ids
from gyre_hpc.protocol.to_gateway import Row, Table
from gyre_hpc.shell.timers import after
from tests.fakes.gateway_world import FORMAT, TOKEN, World, message, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
LONG = spelled("a rather long answer that is moved in the middle")


def script(prompt: Sequence[int], key: bytes) -> Sequence[int]:
    return LONG


async def scripted(held: bool, term: int, version: Version) -> tuple[ScriptedEngine, str]:
    engine = ScriptedEngine(script, run_token=TOKEN, host="127.0.0.1", held=held)
    url = await engine.start()
    await engine.wake(version)
    engine.open_admission(term)
    return engine, url


def table(here: World, *rows: Row) -> None:
    here.table += 1
    here.gateway.host.tell(Received("controller", Table(here.table, 5.0, rows)))


def test_a_role_switch_moves_a_call_with_its_tokens(tmp_path: Path) -> None:
    """The cell closes its gate, aborts with tokens kept; the call goes on elsewhere at the next position."""

    async def steps() -> None:
        async with world(tmp_path) as here:
            one, one_url = await scripted(True, 4, Version(0, 1))
            two, two_url = await scripted(False, 9, Version(0, 2))
            rows = [Row("cell-0", one_url, 4, Version(0, 1)), Row("cell-1", two_url, 9, Version(0, 2))]
            table(here, rows[0])
            asked = asyncio.create_task(here.ask([USER]))
            await until(lambda: one.num_live() == 1, "the call runs")
            one.release(7)
            table(here, rows[1])
            one.close_admission(5)
            assert await one.abort_all({}) == 1
            answer = await asked
            assert message(answer)["content"] == bytes(LONG[:-1]).decode()
            (end,) = here.ends()
            assert end.cells == ("cell-0", "cell-1")
            pieces = [record for record in here.records() if isinstance(record, CallProgress)]
            assert [token for piece in pieces for token in unpack_ids(piece.output_ids).tolist()] == LONG
            spans = [span for piece in pieces for span in piece.spans]
            assert [(span.version.step, span.start, span.end) for span in spans] == [(1, 0, 7), (2, 7, len(LONG))]
            assert {name: here.tokens().get(name, 0) for name in ("lost", "resampled")} == {"lost": 0, "resampled": 0}
            for engine in (one, two):
                await engine.close()

    asyncio.run(steps())


def test_a_wrong_term_is_refused_and_the_next_table_helps(tmp_path: Path) -> None:
    async def steps() -> None:
        async with world(tmp_path) as here:
            engine, url = await scripted(False, 4, Version())
            table(here, Row("cell-0", url, 3, Version()))
            asked = asyncio.create_task(here.ask([USER]))
            await until(lambda: "call_rerouted" in [kind for kind, _ in here.notes], "409")
            table(here, Row("cell-0", url, 4, Version()))
            assert message(await asked)["content"] == bytes(LONG[:-1]).decode()
            await engine.close()

    asyncio.run(steps())


def test_the_timed_engine_serves_the_gateway(tmp_path: Path) -> None:
    async def steps() -> None:
        async with world(tmp_path, small_config(progress_tokens=8)) as here:
            size = {"max_context": 2000, "vocab_size": FORMAT.tokenizer.vocab_size}
            engine = TimedEngine(EngineConfig(timed_tokens_per_s=1e6), timer=after, run_token=TOKEN, host="127.0.0.1", **size)
            url = await engine.start()
            await engine.wake(Version(0, 3))
            engine.open_admission(1)
            table(here, Row("cell-0", url, 1, Version(0, 3)))
            answers = await asyncio.gather(*(here.ask([USER], max_tokens=40, stream=place % 2 == 0) for place in range(6)))
            assert {answer["choices"][0]["finish_reason"] for answer in answers} <= {"length", "stop", "tool_calls"}
            pieces = [record for record in here.records() if isinstance(record, CallProgress)]
            assert all((unpack_floats(piece.logprobs) == -1.0).all() for piece in pieces)
            assert (
                here.tokens()["sampled"]
                == sum(len(piece.output_ids) // 4 for piece in pieces)
                == sum(end.num_output for end in here.ends())
            )
            await engine.close()

    asyncio.run(steps())
