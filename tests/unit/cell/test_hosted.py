"""Cells that share a process: births, ends, kills, failures of one beside the others, and nothing left of any."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from gyre_hpc.cell.hosted import HostedCells
from gyre_hpc.cell.run import lead
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import EngineKind, TrainerKind
from gyre_hpc.errors import UserError
from gyre_hpc.observability.cpu import own_cpu_s
from gyre_hpc.observability.events import read_events
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.hosted import CellEnding, CellOrder, Verb
from gyre_hpc.shell.own_log import ByOwnLog
from gyre_hpc.shell.timers import until, within
from tests.fakes.cell_stage import TOKEN, tiny_config

NOBODY = "http://127.0.0.1:9"


def birth(root: Path) -> Birth:
    config = tiny_config()
    config.engine.kind, config.trainer.kind = EngineKind.timed, TrainerKind.timed
    folder = RunFolder(root)
    (root / "logs").mkdir()
    return Birth(name="cells-0", attempt=1, incarnation=1, supervisor_url=NOBODY, folder=folder, config=config, run_token=TOKEN)


class Process:
    """HostedCells, and what they told."""

    def __init__(self, root: Path, lead: object = lead) -> None:
        self.told: list[CellEnding] = []
        self.cells = HostedCells(birth(root), self.told.append, lead)  # type: ignore[arg-type]

    def order(self, verb: Verb, cell: str, incarnation: int = 1) -> None:
        self.cells.obey(CellOrder(verb, cell, incarnation))

    async def ending(self, cell: str, incarnation: int = 1) -> int:
        await until(lambda: self._code(cell, incarnation), 0.005, 20)
        (code,) = [one.code for one in self.told if (one.cell, one.incarnation) == (cell, incarnation)]
        return code

    def _code(self, cell: str, incarnation: int) -> bool | None:
        return any((one.cell, one.incarnation) == (cell, incarnation) for one in self.told) or None


class Led:
    """A lead that says when a cell can be told to end, and which sockets it has open then."""

    def __init__(self) -> None:
        self.ready: dict[tuple[str, int], asyncio.Event] = {}

    async def __call__(self, birth: Birth, *rest: object, ends: Callable[..., None], **more: object) -> None:
        def can_end(end: Callable[[str], None]) -> None:
            ends(end)
            self.ready[birth.name, birth.incarnation].set()

        await lead(birth, *rest, ends=can_end, **more)  # type: ignore[arg-type]

    async def born(self, process: Process, cell: str, incarnation: int) -> None:
        ready = self.ready[cell, incarnation] = asyncio.Event()
        process.order(Verb.birth, cell, incarnation)
        async with within(20):
            await ready.wait()


def test_a_cell_that_comes_and_goes_a_hundred_times_leaves_no_socket_task_or_thread(tmp_path: Path):
    async def lives() -> None:
        led = Led()
        process = Process(tmp_path, led)
        await led.born(process, "cell-1", 1)
        used: list[tuple[int, int, int]] = []
        for number in range(1, 111):
            before = listening()
            await led.born(process, "cell-0", number)
            if number % 4 < 2:  # else it ends while it still comes up
                await until(lambda before=before: len(listening() - before) == 3 or None, 0.005, 20)
            process.order(Verb.kill if number % 2 else Verb.terminate, "cell-0", number)
            assert await process.ending("cell-0", number) == (-9 if number % 2 else 0)
            if number in (10, 110):
                await settled()
                used.append((len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), threading.active_count()))
        assert used[1][0] <= used[0][0] and used[1][1] <= used[0][1], used
        assert used[1][2] <= used[0][2] + 2, "threads of the loop's own pool may still come"
        process.cells.end("over")
        await process.cells.gone()
        assert await process.ending("cell-1") == 0

    asyncio.run(lives())


async def settled() -> None:
    """Threads of connections that were cut have noticed."""
    with suppress(TimeoutError):
        await until(lambda: not [one for one in threading.enumerate() if "process_request" in one.name] or None, 0.05, 5)


def test_a_killed_cell_breaks_its_connections_and_the_others_keep_theirs(tmp_path: Path):
    async def lives() -> None:
        led = Led()
        process = Process(tmp_path, led)
        connections = []
        for cell in ("cell-0", "cell-1"):
            before = listening()
            await led.born(process, cell, 1)
            await until(lambda before=before: len(listening() - before) == 3 or None, 0.01, 20)
            connections.append([await asyncio.open_connection("127.0.0.1", port) for port in sorted(listening() - before)])
        process.order(Verb.kill, "cell-0")
        assert await process.ending("cell-0") == -9
        async with within(10):
            for reader, _ in connections[0]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        for reader, writer in connections[1]:
            assert not reader.at_eof()
            writer.close()
        process.cells.end("over")
        await process.cells.gone()
        for _, writer in connections[0]:
            writer.close()

    asyncio.run(lives())


def listening() -> set[int]:
    """Ports that this process listens on."""
    own = set()
    for file in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            own.add(os.readlink(f"/proc/self/fd/{file}"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def test_a_cell_that_fails_or_refuses_ends_alone_and_is_told_once(tmp_path: Path):
    async def fails(birth: Birth, *rest: object, ends: Callable[..., None], **more: object) -> None:
        match birth.name:
            case "cell-0":
                raise RuntimeError("a bug")
            case "cell-1":
                raise UserError("model.path", "x", "choose another")
        await asyncio.Event().wait()

    async def lives() -> None:
        process = Process(tmp_path, fails)
        for cell in ("cell-0", "cell-1", "cell-2", "cell-3"):
            process.order(Verb.birth, cell)
        assert (await process.ending("cell-0"), await process.ending("cell-1")) == (1, 2)
        process.order(Verb.terminate, "cell-2")
        assert await process.ending("cell-2") == -15, "it could not hear of it yet"
        process.order(Verb.kill, "cell-0")  # it is gone
        process.cells.end("over")
        await process.cells.gone()
        process.order(Verb.birth, "cell-4")
        assert [await process.ending(cell) for cell in ("cell-3", "cell-4")] == [-15, -15]
        assert len(process.told) == 5

    asyncio.run(lives())


def test_what_a_cell_logs_is_in_its_own_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    handler = ByOwnLog()
    logger = logging.getLogger("gyre_hpc.cell.hosted")
    logger.addHandler(handler)

    async def fails(birth: Birth, *rest: object, **more: object) -> None:
        raise RuntimeError(f"a bug in {birth.name}")

    async def lives() -> None:
        process = Process(tmp_path, fails)
        for cell in ("cell-0", "cell-1"):
            process.order(Verb.birth, cell)
            await process.ending(cell)

    try:
        asyncio.run(lives())
        logger.warning("of the process")
    finally:
        logger.removeHandler(handler)
    for cell in ("cell-0", "cell-1"):
        assert RunFolder(tmp_path).log(cell).read_text().count("RuntimeError: a bug in") == 1
        assert f"RuntimeError: a bug in {cell}" in RunFolder(tmp_path).log(cell).read_text()
    assert capfd.readouterr().err == "of the process\n"


def test_cells_note_their_shares_of_what_the_process_used(tmp_path: Path):
    async def lives() -> float:
        led = Led()
        process = Process(tmp_path, led)
        for cell in ("cell-0", "cell-1"):
            await led.born(process, cell, 1)
        process.cells.end("over")
        await process.cells.gone()
        return own_cpu_s()

    used_s = asyncio.run(lives())
    noted = [event.fields["cpu_s"] for event in read_events(RunFolder(tmp_path).events_folder) if event.kind == "cpu"]
    assert len(noted) == 2 and 0 < sum(noted) <= used_s
