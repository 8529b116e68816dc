"""A gateway shard under trouble: killed, disk full, cells gone, nobody to ask. No token is lost or sampled twice."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gyre_hpc.config.stored import store_config
from gyre_hpc.gateway import journal_writer
from gyre_hpc.gateway.run import Gateway, port_file
from gyre_hpc.protocol.envelope import Envelope, encode
from gyre_hpc.protocol.journal import CallBegin, CallProgress, Delivered, ExecutionEnd
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.shell.arguments import Birth, arguments
from tests.fakes.gateway_world import EXECUTION, TOKEN, TOOLS, InTurn, World, called, events, message, small_config, spelled, until, world

USER = {"role": "user", "content": "hello"}
LONG = spelled("a rather long answer, cut in the middle")


def live(folder: Path, steps: Callable[[World], Awaitable[None]], **gateway: Any) -> None:
    async def run() -> None:
        async with world(folder, small_config(**gateway)) as here:
            await steps(here)

    asyncio.run(run())


def output_ids(here: World, call: str = f"{EXECUTION}/0") -> list[int]:
    """All journaled output of a call; asserts that no position is there twice."""
    ids: list[int] = []
    for record in here.records():
        if isinstance(record, CallProgress) and record.call == call:
            assert record.start == len(ids)
            ids += memoryview(record.output_ids).cast("i").tolist()
    return ids


class KilledGateway(World):
    """The gateway is a process of its own."""

    process: asyncio.subprocess.Process

    async def start(self, incarnation: int = 1) -> None:
        self.folder.token.parent.mkdir(parents=True, exist_ok=True)
        self.folder.token.write_text(TOKEN)
        store_config(self.config, self.folder.config)
        given = arguments(
            name="gateway-0", run=str(self.folder.root), attempt=1, incarnation=incarnation, supervisor_url="http://127.0.0.1:1"
        )
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gyre_hpc.processes.gateway", *given, stdin=asyncio.subprocess.PIPE
        )
        birth = Birth(
            name="gateway-0", attempt=1, incarnation=1, supervisor_url="", folder=self.folder, config=self.config, run_token=TOKEN
        )
        await until(port_file(birth).exists, "the gateway listens")
        self.url = f"http://127.0.0.1:{port_file(birth).read_text()}"

    async def tell(self, *rows: int) -> None:
        """Send a table over HTTP, until it is taken."""
        self.table += 1
        body = encode(Envelope("controller", 1, Table(self.table, 5.0, tuple(self._row(place, 1) for place in rows))))
        for _ in range(500):
            try:
                async with self.http.post(f"{self.url}/messages", data=body, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
                    assert response.status == 204
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
        raise AssertionError("the gateway does not take messages")

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def close(self) -> None:
        await self.http.close()
        if self.process.returncode is None:
            await self.kill()
        for engine in self.engines:
            await engine.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_killed_gateway_goes_on_from_its_journal(tmp_path: Path, stream: bool) -> None:
    async def steps() -> None:
        config = small_config(progress_tokens=4)
        config.journal.fsync = True
        here = KilledGateway(tmp_path, config)
        await here.start()
        try:
            engine = await here.engine(InTurn(called("ls"), LONG))
            await here.tell(0)
            first = await here.ask([USER], tools=TOOLS)
            talk = [USER, message(first), {"role": "tool", "tool_call_id": message(first)["tool_calls"][0]["id"], "content": "x"}]
            engine.faults = ["hang:10"]
            broken = asyncio.create_task(here.ask(talk, tools=TOOLS, stream=stream))
            await until(lambda: len(output_ids(here, f"{EXECUTION}/1")) >= 8, "eight tokens are journaled")
            await here.kill()
            with pytest.raises(aiohttp.ClientError):
                await broken
            kept = len(output_ids(here, f"{EXECUTION}/1"))
            old_url = here.url
            await here.start(incarnation=2)
            await here.tell(0)
            assert here.url == old_url
            again = await here.ask(talk, tools=TOOLS, stream=stream)
            assert message(again)["content"] == bytes(LONG[:-1]).decode()
            last = engine.requests[-1]
            assert last["sampling_params"]["custom_params"]["position"] == kept
            assert last["input_ids"] == engine.requests[1]["input_ids"] + LONG[:kept]
            assert output_ids(here, f"{EXECUTION}/1") == LONG
            # What ended before the kill is answered again without sampling, and the same ids lead on.
            asked = len(engine.requests)
            assert message(await here.ask(talk, tools=TOOLS, stream=stream)) == message(again)
            assert len(engine.requests) == asked
            begins = [record for record in here.records() if isinstance(record, CallBegin)]
            assert [begin.parent for begin in begins] == [None, f"{EXECUTION}/0"]
        finally:
            await here.close()

    asyncio.run(steps())


def test_a_gateway_ends_when_its_parent_closes_the_pipe(tmp_path: Path) -> None:
    async def steps() -> None:
        here = KilledGateway(tmp_path, small_config())
        await here.start()
        assert here.process.stdin is not None
        here.process.stdin.close()
        assert await here.process.wait() == 0
        await here.close()

    asyncio.run(steps())


def test_a_full_disk_holds_answers_back_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = False
    write = os.write

    def maybe(fd: int, data: Any) -> int:
        if full:
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
        full = False
        assert message(await asked)["content"] == bytes(LONG[:-1]).decode()
        assert message(await other)["content"] == "two"
        assert output_ids(here) == LONG

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
        with pytest.raises(ValueError, match="damaged"):
            Gateway(
                Birth(
                    name="gateway-0", attempt=1, incarnation=2, supervisor_url="", folder=here.folder, config=here.config, run_token=TOKEN
                ),
                print,
                1,
            )

    asyncio.run(steps())
