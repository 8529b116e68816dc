"""A real server's life: started from a folder without weights, adopted, ended, and what is left of it. See
tests/unit/engines/test_sglang_server_life.py for every way it can end."""

import asyncio
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.engine_schema import Device, EngineConfig, EngineKind, SGLangConfig
from gyre_hpc.engines.sglang import server as server_module
from gyre_hpc.engines.sglang.environment import python_of
from gyre_hpc.engines.sglang.flags import create_launch, room_for
from gyre_hpc.engines.sglang.model_folder import write_model_folder
from gyre_hpc.engines.sglang.parts import Address, Launch, Nodes, ServerLost
from gyre_hpc.engines.sglang.server import Server
from gyre_hpc.engines.sglang.shared_memory import mapped
from gyre_hpc.engines.sglang.site import Site
from gyre_hpc.errors import UserError
from gyre_hpc.observability.process_tree import Process, is_alive
from tests.fakes.server_stage import ServerStage, living, run, stage, until
from tests.sglang.models import tiny_config

MAX_CONTEXT = 512
KV_TOKENS = MAX_CONTEXT


def launch(here: ServerStage, sglang: SGLangConfig, nodes: Nodes | None = None, **flags: Any) -> Launch:
    nodes = nodes or Nodes()
    sglang.flags = flags
    return create_launch(
        EngineConfig(kind=EngineKind.sglang, kv_tokens=KV_TOKENS, sglang=sglang),
        Site(folder=here.folder, cache=here.root, world=nodes.count, nodes=nodes),
        max_context=MAX_CONTEXT,
        model_folder=write_model_folder(here.root / "m", tiny_config(max_context=MAX_CONTEXT), dtype="float32"),
        device=Device.cpu,
        python=python_of(Path(sglang.environment)),
        program=(sglang.launcher,),
        inherited=os.environ,
    )


def server_of(here: ServerStage, made: Launch, *, is_first: bool = True) -> Server:
    return here.server(made, start_deadline_s=500.0, orphan_s=60.0, end_s=20.0, is_first=is_first)


def ask(address: Address, path: str, body: Any = None, *, key: str | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {address.key if key is None else key}", "Content-Type": "application/json"}
    request = urllib.request.Request(address.url + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


def generate(address: Address, prompt: list[int], num_tokens: int) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": num_tokens}
    status, answer = ask(address, "/generate", {"input_ids": prompt, "sampling_params": params})
    assert status == 200
    return dict(answer)


async def gone(processes: list[Process]) -> None:
    await until(lambda: not any(is_alive(process) for process in processes), "every process ends")


@pytest.mark.timeout(600)
def test_a_server_lives_on_without_its_leader_and_dies_with_its_keeper(sglang: SGLangConfig) -> None:
    async def test(here: ServerStage) -> None:
        first = server_of(here, launch(here, sglang))
        address = await first.start()
        assert (await asyncio.to_thread(ask, address, "/model_info", key="guess"))[0] == 401
        info = (await asyncio.to_thread(ask, address, "/server_info"))[1]
        assert info["max_total_num_tokens"] == room_for(KV_TOKENS, 16) and info["page_size"] == 16 and info["weight_version"] == "0.0"
        # Exactly our limits, and no end-of-text of its own: every id may be drawn, none ends the answer.
        # A prompt of almost all of it too: for one that it cannot place it would wait for ever.
        for num_prompt in (200, MAX_CONTEXT - 12, MAX_CONTEXT - 1):
            answer = await asyncio.to_thread(generate, address, [5 + i % 500 for i in range(num_prompt)], MAX_CONTEXT - num_prompt)
            assert len(answer["output_ids"]) == MAX_CONTEXT - num_prompt
            assert answer["meta_info"]["finish_reason"]["type"] == "length"
        first.note("awake")
        pids = first.pids()
        await first.leave()

        second = server_of(here, launch(here, sglang))
        assert await second.start() == address and second.was_adopted and second.pids() == pids
        assert len(pids) >= 5, "keeper, guard, launcher, scheduler, detokenizer"
        processes, shared = living(second), mapped(pids)
        assert shared, "the loads of its scheduler, at least"
        os.kill(pids[0], signal.SIGKILL)
        await gone(processes)
        await until(second.failure, "its leader hears of it")
        await until(lambda: here.litter() == set() and not any(Path(path).exists() for path in shared), "nothing is left")

    run(test)


@pytest.mark.rare
@pytest.mark.timeout(600)
def test_a_server_ends_with_its_files_and_one_whose_port_was_taken_gets_another(
    sglang: SGLangConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(here: ServerStage) -> None:
        server = server_of(here, launch(here, sglang))
        find, tried = server_module._free_port, []
        with socket.create_server(("127.0.0.1", 0)) as other:

            def free_port() -> int:
                tried.append(find() if tried else other.getsockname()[1])
                return int(tried[-1])

            monkeypatch.setattr(server_module, "_free_port", free_port)
            address = await server.start()
        assert len(tried) == 2 and address.url.endswith(f":{tried[1]}")
        processes = living(server)
        shared = mapped(server.pids())
        assert shared, "the loads of its scheduler, at least"
        await server.stop()
        assert not any(is_alive(process) for process in processes)
        assert here.litter() == set() and not any(Path(path).exists() for path in shared)
        with pytest.raises(OSError), socket.create_connection(("127.0.0.1", tried[1])):
            pass

    run(test)


@pytest.mark.timeout(300)
def test_its_processes_end_with_the_keeper_while_they_are_starting(sglang: SGLangConfig) -> None:
    async def test(here: ServerStage) -> None:
        server = server_of(here, launch(here, sglang))
        start = asyncio.create_task(server.start())
        # Launcher below guard below keeper, and the first process that it has spawned.
        await until(lambda: len(server.pids()) >= 4, "it starts its ranks")
        # Helpers of its imports (a compiler, ldconfig) come and go meanwhile.
        processes = living(server)
        os.kill(processes[0].pid, signal.SIGKILL)
        await gone(processes)
        with pytest.raises(ServerLost, match="keeper"):
            await start
        await here.all_gone([])

    run(test)


@pytest.mark.timeout(300)
def test_a_flag_that_sglang_does_not_know_is_named(sglang: SGLangConfig) -> None:
    async def test(here: ServerStage) -> None:
        with pytest.raises(UserError, match=r"engine\.sglang\.flags='.*unrecognized arguments: --no-such-flag'"):
            await server_of(here, launch(here, sglang, **{"no-such-flag": True})).start()

    run(test)


@pytest.mark.rare
@pytest.mark.timeout(900)
def test_the_servers_of_two_nodes_are_one(sglang: SGLangConfig) -> None:
    async def test(first: ServerStage) -> None:
        async with stage() as second:
            with socket.create_server(("127.0.0.1", 0)) as free:
                address = f"127.0.0.1:{free.getsockname()[1]}"
            # One core for each rank: SGLang would want a NUMA node for each.
            cores = sorted(os.sched_getaffinity(0))
            sglang.environ = {"SGLANG_CPU_OMP_THREADS_BIND": f"{cores[0]}|{cores[-1]}"}
            servers = [
                server_of(here, launch(here, sglang, Nodes(number=number, count=2, address=address)), is_first=number == 0)
                for number, here in enumerate((first, second))
            ]
            api, _ = await asyncio.gather(*(server.start() for server in servers))
            answer = await asyncio.to_thread(generate, api, list(range(5, 60)), 20)
            assert len(answer["output_ids"]) == 20
            assert (await asyncio.to_thread(ask, api, "/server_info"))[1]["tp_size"] == 2
            processes = [process for server in servers for process in living(server)]
            for server in servers:
                await server.stop()
            assert not any(is_alive(process) for process in processes)
            assert first.litter() == second.litter() == set()

    run(test)
