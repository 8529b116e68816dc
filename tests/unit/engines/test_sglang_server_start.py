"""Starts that fail, and what they say; ports that others take; what a server prints. The server pretends."""

import asyncio
from dataclasses import replace

import pytest

from gyre_hpc.engines.sglang import server as server_module
from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.errors import UserError
from tests.fakes.server_stage import NUM_PROCESSES, ServerStage, answers, run, stage, until


def test_what_ended_says_its_last_words() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(here.launch("die"))
        with pytest.raises(ServerLost, match="ended with exit code 1.*(?s:.)*last words: no such model"):
            await server.start()
        assert "last words" in str(server.failure())
        await here.all_gone([])
        assert here.litter() == set()

    run(test)


def test_a_flag_the_server_does_not_know_is_the_users_error() -> None:
    async def test(here: ServerStage) -> None:
        with pytest.raises(UserError, match=r"engine\.sglang\.flags='.*unrecognized arguments: --no-such-flag'"):
            await here.server(here.launch(flags=("--no-such-flag",))).start()
        await here.all_gone([])

    run(test)


def test_a_program_that_is_not_there_is_in_the_error() -> None:
    async def test(here: ServerStage) -> None:
        with pytest.raises(ServerLost, match="/no/python: .*No such file"):
            await here.server(here.launch(python="/no/python")).start()

    run(test)


def test_one_that_never_answers_is_ended_at_its_deadline() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(here.launch("never-well"), start_deadline_s=1.0)
        with pytest.raises(ServerLost, match="did not answer within 1 s"):
            await server.start()
        await here.all_gone([])

    run(test)


def test_of_a_further_nodes_server_only_health_is_asked() -> None:
    async def test(here: ServerStage) -> None:
        await here.server(here.launch("follower"), is_first=False).start()
        with pytest.raises(ServerLost, match="did not answer"):
            await here.server(here.launch("follower"), start_deadline_s=2.0).begin()

    run(test)


def test_a_start_that_is_given_up_leaves_nothing() -> None:
    async def test(here: ServerStage) -> None:
        server = here.server(here.launch("never-well"))
        start = asyncio.create_task(server.start())
        await until(lambda: len(here.processes()) == NUM_PROCESSES, "it has started")
        start.cancel()
        await here.all_gone([])
        assert here.litter() == set()

    run(test)


def test_a_port_that_was_taken_in_between_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: ServerStage) -> None:
        ports: list[int] = []

        def free_port() -> int:
            ports.append(find())
            return ports[-1]

        find = server_module._free_port
        monkeypatch.setattr(server_module, "_free_port", free_port)
        server = here.server(here.launch("taken"))
        address = await server.start()
        assert len(ports) == 2 and address.url.endswith(f":{ports[1]}")
        assert await asyncio.to_thread(answers, address) == 200

    run(test)


def test_a_bootstrap_port_that_was_taken_ends_the_start_at_once() -> None:
    """It would serve without one, and no prompt would ever reach the other half of its pair."""

    async def test(here: ServerStage) -> None:
        launch = here.launch(flags=("--pretend", "no-bootstrap", "--disaggregation-bootstrap-port", "4001"))
        with pytest.raises(ServerLost, match="found its bootstrap port taken"):
            await here.server(replace(launch, bootstrap_port=4001)).start()
        await here.all_gone([])

    run(test)


def test_another_program_on_its_port_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: ServerStage) -> None:
        other = here.server()
        other_port = int((await other.start()).url.rpartition(":")[2])
        monkeypatch.setattr(server_module, "_free_port", lambda: other_port)
        async with stage() as elsewhere:
            with pytest.raises(ServerLost, match="found its port taken"):
                await elsewhere.server().start()
        assert other.failure() is None

    run(test)


def test_the_log_keeps_its_size_and_its_end() -> None:
    async def test(here: ServerStage) -> None:
        limit = 20_000
        server = here.server(here.launch("chatty"), log_bytes=limit)
        await server.start()
        sizes = [(here.folder / name).stat().st_size for name in ("server.log", "server.log.1")]
        assert all(0 < size <= limit for size in sizes)
        assert "line 3999" in (here.folder / "server.log").read_text()
        await server.stop()

    run(test)


def test_the_folder_of_a_server_has_a_short_path() -> None:
    async def test(here: ServerStage) -> None:
        with pytest.raises(UserError, match="paths.scratch"):
            here.server(here.launch(folder=here.root / ("x" * 60)))

    run(test)
