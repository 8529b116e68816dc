"""Life and death of a server: what outlives what. The server pretends; keeper, guard and signals are real."""

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gyre_hpc.engines.sglang import predecessor
from gyre_hpc.engines.sglang.parts import Address
from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.observability.process_tree import is_alive
from tests.fakes.server_stage import NUM_PROCESSES, ServerStage, answers, bystander, process_of, run, until


def test_a_started_server_answers_to_its_key_alone_and_stop_leaves_nothing() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server()
        address = await server.start()
        assert (await asyncio.to_thread(answers, address), await asyncio.to_thread(answers, address, "guess")) == (200, 401)
        assert not server.was_adopted and server.failure() is None
        processes = here.processes()
        assert sorted(server.pids()) == sorted(process.pid for process in processes) and len(processes) == NUM_PROCESSES
        command_lines = b"".join(Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in processes)
        assert address.key.encode() not in command_lines, "a command line is for all users to read"
        await server.stop()
        await here.all_gone(processes)
        assert here.litter() == set() and server.pids() == ()
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", int(address.url.rpartition(":")[2]))):
            pass

    run(test)


@pytest.mark.parametrize("state", ["asleep", "awake"])
def test_the_next_leader_finds_the_server_as_it_was(state: str) -> None:
    async def test(here: ServerStage) -> None:
        first = here.server()
        address = await first.start()
        first.note("changing")
        first.note(state)
        pids = first.pids()
        await first.leave()
        second = here.server()
        assert await second.start() == address
        assert second.was_adopted and second.noted == state and second.pids() == pids and second.failure() is None
        await second.stop()
        assert here.litter() == set()

    run(test)


LEADER = """
import asyncio, sys
from pathlib import Path
from gyre_hpc.engines.sglang.server import Server
from tests.fakes.server_stage import pretended_launch

async def lead():
    server = Server(pretended_launch(Path(sys.argv[1])), start_deadline_s=60, orphan_s=60)
    address = await server.start()
    server.note("awake")
    print(address.url, address.key, *server.pids(), flush=True)
    await asyncio.Event().wait()

asyncio.run(lead())
"""


def test_a_leader_that_is_killed_leaves_its_server_to_the_next_one() -> None:
    async def test(here: ServerStage) -> None:
        root = Path(__file__).resolve().parents[3]
        leader = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LEADER, str(here.folder), cwd=root, stdout=asyncio.subprocess.PIPE
        )
        assert leader.stdout is not None
        url, key, *pids = (await leader.stdout.readline()).decode().split()
        leader.kill()
        await leader.wait()
        server = here.server()
        assert await server.start() == Address(url=url, key=key)
        assert server.was_adopted and server.noted == "awake" and server.pids() == tuple(map(int, pids))

    run(test)


@pytest.mark.parametrize("noted", ["changing", ""])
def test_a_server_in_an_unknown_state_is_not_adopted(noted: str) -> None:
    async def test(here: ServerStage) -> None:
        first = here.server()
        await first.start()
        if noted:
            first.note(noted)
        processes = here.processes()
        await first.leave()
        second = here.server()
        await second.start()
        assert not second.was_adopted and second.noted == ""
        assert not {process.pid for process in processes} & set(second.pids())
        assert len(here.processes()) == NUM_PROCESSES

    run(test)


def test_a_server_of_another_launch_is_ended_not_adopted() -> None:
    async def test(here: ServerStage) -> None:
        first = here.server()
        await first.start()
        first.note("awake")
        old = process_of(first.pids()[0])
        second = here.server(here.launch(flags=("--model-path", "elsewhere")))
        await second.start()
        assert not second.was_adopted
        await until(first.failure, "the first leader hears of it")
        assert old.pid not in second.pids() and len(here.processes()) == NUM_PROCESSES

    run(test)


def test_other_users_reach_neither_log_nor_keeper() -> None:
    async def test(here: ServerStage) -> None:
        here.folder.mkdir(mode=0o755)
        await here.server().start()
        modes = {path: path.stat().st_mode & 0o077 for path in (here.folder, here.folder / "keeper.sock", here.folder / "tmp")}
        assert set(modes.values()) == {0}, modes

    run(test)


def test_an_orphan_waits_its_time_then_ends() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(orphan_s=0.0)
        await server.start()
        processes = here.processes()
        await server.leave()
        await here.all_gone(processes)
        assert here.litter() == set()

    run(test)


def test_the_end_of_the_run_ends_the_server_though_its_leader_is_there() -> None:
    async def test(here: ServerStage) -> None:
        root = bystander()
        server = here.server(root_pid=root.pid)
        await server.start()
        processes = here.processes()
        # Not waited for: a process of which only the exit status is left counts as gone.
        root.kill()
        await here.all_gone(processes)
        await until(server.failure, "its leader hears of it")
        assert "its run is over" in str(server.failure())
        root.wait()

    run(test)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["keeper", "guard", "server"])
def test_no_sigkill_leaves_a_process_behind(place: int) -> None:
    async def test(here: ServerStage) -> None:
        server = here.server()
        await server.start()
        processes = here.processes()
        os.kill(server.pids()[place], signal.SIGKILL)
        await here.all_gone(processes)
        await until(server.failure, "its leader hears of it")
        assert here.litter() == set()
        assert server.pids() == ()

    run(test)


def test_the_server_ends_with_leader_and_keeper_killed_at_once() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server()
        await server.start()
        processes, keeper = here.processes(), server.pids()[0]
        await server.leave()
        os.kill(keeper, signal.SIGKILL)
        await here.all_gone(processes)

    run(test)


@pytest.mark.parametrize("place", [None, 0, 1, 2], ids=["stop", "keeper", "guard", "server"])
def test_shared_memory_goes_with_the_server_but_not_that_of_others(place: int | None) -> None:
    async def test(here: ServerStage) -> None:
        own, others = (Path("/dev/shm") / f"{kind}{here.root.name}" for kind in ("sglang_loads_", "storage_"))
        made = here.launch()
        made = replace(made, environ={**made.environ, "PRETEND_SHARED": f"{own.name} {others.name}"})
        server = here.server(made)
        await server.start()
        try:
            assert own.exists() and others.exists()
            if place is None:
                await server.stop()
            else:
                os.kill(server.pids()[place], signal.SIGKILL)
                await until(server.failure, "it ends")
                await here.all_gone([])
            assert not own.exists() and others.exists()
        finally:
            own.unlink(missing_ok=True)
            others.unlink(missing_ok=True)

    run(test)


@pytest.mark.parametrize("place", [0, 1], ids=["keeper", "guard"])
def test_sigterm_ends_the_server_in_order(place: int) -> None:
    async def test(here: ServerStage) -> None:
        server = here.server()
        await server.start()
        processes = here.processes()
        os.kill(server.pids()[place], signal.SIGTERM)
        await here.all_gone(processes)
        await until(server.failure, "its leader hears of it")
        assert "SIGTERM" in str(server.failure()) and here.litter() == set()

    run(test)


def test_what_announces_the_end_of_a_job_does_not_end_the_server() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server()
        address = await server.start()
        processes = [process_of(pid) for pid in server.pids()]
        for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            for process in processes[:3]:
                os.kill(process.pid, sig)
        server.note("awake")
        successor = here.server()
        assert await successor.start() == address and successor.was_adopted, "the keeper is there"
        assert await asyncio.to_thread(answers, address) == 200, "the server is there"
        assert all(is_alive(process) for process in processes)

    run(test)


def test_one_that_ignores_sigterm_is_killed_and_its_end_told() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(here.launch("stubborn"), end_s=0.2)
        await server.start()
        processes = here.processes()
        await server.stop()
        assert not here.processes()
        await here.all_gone(processes)

    run(test)


def test_a_server_that_has_lost_a_rank_is_lost_whatever_it_says() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(here.launch("ranks"))
        await server.start()
        processes = here.processes()
        ((rank, title),) = ranks_below(server.pids()[0]).items()
        os.kill(rank.pid, signal.SIGKILL)
        await until(lambda: server.failure(), "the loss is told")
        assert f"lost its process {title}" in str(server.failure())
        await here.all_gone(processes)

    run(test)


def test_a_keeper_that_hangs_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessor, "_KILL_S", 1.0)

    async def test(here: ServerStage) -> None:
        server = here.server(end_s=0.2)
        await server.start()
        processes = here.processes()
        os.kill(server.pids()[0], signal.SIGSTOP)
        await server.stop()
        await here.all_gone(processes)

    run(test)
