"""Cells that share a process are children of their own: each with its exit code, its kills and its stacks."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gyre_hpc.config.schema import Config, EngineKind, TrainerKind
from gyre_hpc.machines.supervision import DumpStacks, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.shell.timers import until, within
from gyre_hpc.supervisor import shared
from gyre_hpc.supervisor.children import Children
from tests.fakes.cell_stage import Stage, tiny_config
from tests.fakes.live_run import is_alive


def shared_config() -> Config:
    config = tiny_config()
    config.engine.kind, config.trainer.kind = EngineKind.timed, TrainerKind.timed
    config.cluster.cells_per_process = 2
    return config


class Node:
    """The shell of one node's supervision, and a stage to which cells register."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.children = Children(stage.folder, lambda action: stage.commands.build(action.process, action.incarnation))
        self.lives: dict[str, asyncio.Task[int]] = {}

    def spawn(self, cell: str, incarnation: int = 1) -> None:
        action = SpawnProcess(cell, incarnation)
        self.lives[cell] = asyncio.create_task(self.children.spawn("", action, print))

    async def registered(self, *cells: str, incarnation: int = 1) -> int:
        """Pid of the process in which they are."""

        def pids() -> set[int] | None:
            found = [self._stage.registered.get(cell) for cell in cells]
            there = {one.pid for one in found if one is not None and one.incarnation == incarnation}
            return there if all(one is not None and one.incarnation == incarnation for one in found) else None

        (pid,) = await until(pids, 0.02, 40)
        return pid

    async def ending(self, cell: str) -> int:
        async with within(30):
            return await self.lives[cell]


def on_a_node(root: Path, do: Callable[[Node], Awaitable[None]]) -> None:
    async def live(stage: Stage) -> None:
        node = Node(stage)
        try:
            await do(node)
        finally:
            for life in node.lives.values():
                life.cancel()
            await asyncio.gather(*node.lives.values(), return_exceptions=True)
            await node.children.close()

    with Stage(root, shared_config()) as stage:
        asyncio.run(live(stage))


def test_one_cell_is_killed_or_told_to_end_and_its_neighbour_stays(tmp_path: Path):
    async def do(node: Node) -> None:
        node.spawn("cell-0")
        node.spawn("cell-1")
        node.spawn("cell-2")
        pid = await node.registered("cell-0", "cell-1")
        assert await node.registered("cell-2") != pid
        await node.children.kill("", KillProcess("cell-0", 1), print)
        assert await node.ending("cell-0") == -signal.SIGKILL
        node.spawn("cell-0", 2)
        assert await node.registered("cell-0", incarnation=2) == pid
        await node.children.terminate("", TerminateProcess("cell-0", 2), print)
        assert await node.ending("cell-0") == 0
        assert is_alive(pid) and not node.lives["cell-1"].done()
        await node.children.terminate("", TerminateProcess("cell-1", 1), print)
        assert await node.ending("cell-1") == 0
        assert not is_alive(pid), "the last one is gone when its process is"
        node.spawn("cell-1", 2)
        assert await node.registered("cell-1", incarnation=2) != pid

    on_a_node(tmp_path, do)


def test_who_dies_with_the_process_has_its_exit_code(tmp_path: Path):
    async def do(node: Node) -> None:
        node.spawn("cell-0")
        node.spawn("cell-1")
        pid = await node.registered("cell-0", "cell-1")
        os.kill(pid, signal.SIGKILL)
        assert [await node.ending(cell) for cell in ("cell-0", "cell-1")] == [-signal.SIGKILL] * 2
        node.spawn("cell-0", 2)
        node.spawn("cell-1", 2)
        assert await node.registered("cell-0", "cell-1", incarnation=2) != pid

    on_a_node(tmp_path, do)


def test_a_process_that_hangs_goes_with_the_kill_of_one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared, "ANSWER_S", 0.5)

    async def do(node: Node) -> None:
        node.spawn("cell-0")
        node.spawn("cell-1")
        pid = await node.registered("cell-0", "cell-1")
        os.kill(pid, signal.SIGSTOP)
        await node.children.kill("", KillProcess("cell-1", 1), print)
        assert [await node.ending(cell) for cell in ("cell-0", "cell-1")] == [-signal.SIGKILL] * 2

    on_a_node(tmp_path, do)


def test_stacks_of_a_cell_are_where_people_look_for_them(tmp_path: Path):
    async def do(node: Node) -> None:
        node.spawn("cell-0")
        node.spawn("cell-1")
        pid = await node.registered("cell-0", "cell-1")
        assert await node.children.stacks("", DumpStacks("cell-1", 1), print) == (pid,)
        (file,) = (tmp_path / "logs").glob("cell-1-1-1.*stacks")
        assert "processes/cells.py" in file.read_text()
        assert not list((tmp_path / "logs").glob("cell-0-1-1.*stacks"))

    on_a_node(tmp_path, do)


def test_a_supervisor_that_ends_takes_them_along(tmp_path: Path):
    pids: list[int] = []

    async def do(node: Node) -> None:
        node.spawn("cell-0")
        node.spawn("cell-1")
        pids.append(await node.registered("cell-0", "cell-1"))

    on_a_node(tmp_path, do)
    assert not is_alive(pids[0])
