"""A gateway shard under trouble: killed, disk full, cells gone, nobody to ask. No token is lost or sampled twice."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gyre_hpc.gateway import journal_writer
from gyre_hpc.gateway.run import Gateway
from gyre_hpc.protocol.journal import CallProgress, Delivered, ExecutionEnd
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.shell.arguments import Birth
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, events, message, output_ids, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
LONG = spelled("a rather long answer, cut in the middle")


def live(folder: Path, steps: Callable[[World], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await steps(here)

    asyncio.run(run())


def test_a_full_disk_holds_answers_back_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, num_refused = False, 0
    write = os.write

    def maybe(fd: int, data: Any) -> int:
        nonlocal num_refused
        if full:
            num_refused += 1
            # Half of it reaches the disk: it must be cut off again.
            write(fd, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data)

    class Os:
        def __getattr__(self, name: str) -> Any:
            return maybe if name == "write" else getattr(os, name)

    monkeypatch.setattr(journal_writer, "os", Os())
    monkeypatch.setattr("gyre_hpc.machines.call.journal_queue.RETRY_S", 0.05)

    async def steps(here: World) -> None:
        nonlocal full
        engine = await here.engine(InTurn(LONG, spelled("two")))
        engine.faults = ["late:5"]
        here.route(0)
        asked = asyncio.create_task(here.ask([USER]))
        await until(lambda: here.tokens().get("sampled") == 5, "five tokens")
        full = True
        engine.gate.set()
        await until(lambda: "storage_full" in [kind for kind, _ in here.notes], "the gateway notices")
        other = asyncio.create_task(here.ask([{"role": "user", "content": "another"}]))
        await until(lambda: len(here.gateway.host._machine._shard.waiting) == 1, "new calls wait")  # type: ignore[union-attr]
        assert not asked.done()
        assert len(engine.requests) == 1
        await until(lambda: num_refused >= 4, "it tries again and again")
        assert [kind for kind, _ in here.notes].count("storage_full") == 1, "and says so once"
        full = False
        assert message(await asked)["content"] == bytes(LONG[:-1]).decode()
        assert message(await other)["content"] == "two"
        assert output_ids(here) == LONG
        assert ["No space" in fields["reason"] for kind, fields in here.notes if kind == "storage_full"] == [True, False], (
            "then that it is cured"
        )

    live(tmp_path, steps)


def test_a_hung_cell_is_left_when_it_is_off_the_table(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        one, two = await here.engine(InTurn(LONG)), await here.engine(InTurn(LONG))
        one.faults = ["hang:7"]
        here.route(0)
        asked = asyncio.create_task(here.ask([USER]))
        await until(lambda: here.tokens().get("sampled") == 7, "seven tokens")
        here.route(1)
        assert message(await asked)["content"] == bytes(LONG[:-1]).decode()
        assert two.requests[0]["sampling_params"]["custom_params"]["position"] == 7
        assert output_ids(here) == LONG
        assert here.tokens()["unreceived"] == 1

    live(tmp_path, steps, table_lease_s=0.1)


def test_a_call_without_any_cell_waits_with_keep_alives_until_a_table_comes(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        body = orjson.dumps({"messages": [USER], "stream": True})
        key = {"Authorization": f"Bearer {execution_token(TOKEN, EXECUTION)}"}
        async with here.http.post(f"{here.url}/e/{EXECUTION}/v1/chat/completions", data=body, headers=key) as response:
            seen = b""
            async for data in response.content.iter_any():
                seen += data
                if len(events(seen)) == 4:
                    await here.engine(InTurn(spelled("ok")))
                    here.route(0)
        deltas = [event["choices"][0]["delta"] for event in events(seen)]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert deltas[1:4] == [{"content": ""}] * 3
        assert "".join(delta.get("content", "") for delta in deltas) == "ok"

    live(tmp_path, steps, keepalive_s=0.03)


def test_a_call_nobody_can_serve_ends_with_a_reason_and_can_be_taken_up_again(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        answer = await here.ask([USER])
        assert (answer["status"], answer["error"]["type"]) == (503, "server_error")
        assert "no cell takes calls" in answer["error"]["message"]
        await here.engine(InTurn(spelled("ok")))
        here.route(0)
        assert message(await here.ask([USER]))["content"] == "ok"
        await until(lambda: any(isinstance(record, Delivered) for record in here.records()), "delivered")
        assert [end.finish for end in here.ends()] == ["failed", "stop"]
        assert len({end.call for end in here.ends()}) == 1

    live(tmp_path, steps, call_deadline_s=0.3)


def test_an_abandoned_call_is_cancelled_and_its_retry_goes_on_from_its_tokens(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(LONG))
        engine.faults = ["hang:6"]
        here.route(0)
        first = asyncio.create_task(here.ask([USER]))
        await until(lambda: here.tokens().get("sampled") == 6, "six tokens")
        first.cancel()
        await until(lambda: [end.finish for end in here.ends()] == ["abandoned"], "given up")
        assert output_ids(here) == LONG[:6]
        assert message(await here.ask([USER]))["content"] == bytes(LONG[:-1]).decode()
        assert engine.requests[1]["sampling_params"]["custom_params"]["position"] == 6
        assert output_ids(here) == LONG

    live(tmp_path, steps, abandon_s=0.05)


def test_an_ended_execution_takes_no_more_calls(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(LONG))
        engine.faults = ["hang:2"]
        here.route(0)
        asked = asyncio.create_task(here.ask([USER]))
        await until(lambda: here.tokens().get("sampled") == 2, "two tokens")
        here.route(0, ended=(EXECUTION,))
        assert (await asked)["error"]["code"] == "execution_ended"
        assert (await here.ask([USER]))["error"]["code"] == "execution_ended"
        await until(lambda: any(isinstance(record, ExecutionEnd) for record in here.records()), "its end is recorded")
        assert output_ids(here) == LONG[:2]
        shard = here.gateway.host._machine._shard  # type: ignore[union-attr]
        assert not shard.trees and not shard.live
        assert shard.routing.loads["cell-0"] == 0

    live(tmp_path, steps)


def test_a_continuation_never_goes_to_older_weights(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        new, old = await here.engine(InTurn(LONG), version="0.2"), await here.engine(InTurn(LONG), version="0.1")
        newer = await here.engine(InTurn(LONG), version="0.3")
        new.faults = ["abort:5", "busy", "busy", "busy", "busy"]
        here.route(0)
        asked = asyncio.create_task(here.ask([USER]))
        await until(lambda: len(new.requests) > 1, "aborted, refused")
        here.route(1)
        await until(lambda: here.gateway.host._machine._shard.waiting, "it waits rather")  # type: ignore[union-attr]
        here.route(1, 2)
        assert message(await asked)["content"] == bytes(LONG[:-1]).decode()
        assert not old.requests
        spans = [span for record in here.records() if isinstance(record, CallProgress) for span in record.spans]
        assert [(str(span.version), span.start, span.end) for span in spans] == [("0.2", 0, 5), ("0.3", 5, len(LONG))]
        assert len(newer.requests) == 1

    live(tmp_path, steps)


def test_a_damaged_journal_is_not_taken_for_a_torn_end(tmp_path: Path) -> None:
    async def steps() -> None:
        async with world(tmp_path) as here:
            await here.engine(InTurn(spelled("ok")))
            here.route(0)
            await here.ask([USER])
        (path,) = journal_writer.segments(here.folder.journal, "gateway-0", 1)
        data = bytearray(path.read_bytes())
        data[30] ^= 1
        path.write_bytes(data)
        birth = Birth(
            name="gateway-0", attempt=1, incarnation=2, supervisor_url="", folder=here.folder, config=here.config, run_token=TOKEN
        )
        again = Gateway(birth, lambda kind, fields: None, 1)
        with pytest.raises(ValueError, match="damaged"):
            await again.start()
        await again.close()

    asyncio.run(steps())
