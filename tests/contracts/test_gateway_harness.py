"""The shipped harness program against the real gateway, and the gateway's machine against what it was told."""

import asyncio
import os
from pathlib import Path

import pytest

from gyre_hpc.gateway.run import Gateway
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.base import Start
from gyre_hpc.machines.call import GatewayMachine
from gyre_hpc.protocol.journal import CallBegin, CallEnd
from gyre_hpc.protocol.tokens import execution_token
from gyre_hpc.shell.recorder import read_inputs
from tests.fakes.gateway_world import EXECUTION, TOKEN, InTurn, World, called, small_config, spelled, world


async def run_harness(here: World, instruction: str, workspace: Path, *, stream: bool) -> tuple[int, str]:
    start = Start(
        gateway_url=f"{here.url}/e/{EXECUTION}", api_key=execution_token(TOKEN, EXECUTION), instruction=instruction,
        workspace=str(workspace), home=str(workspace),
        options={"max_calls": 5, "context_tokens": 200, "max_output_tokens": 100, "stream": stream},
    )  # fmt: skip
    launch = create_harness("shell_agent").launch(start)
    process = await asyncio.create_subprocess_exec(*launch.argv, env=launch.environment, cwd=workspace, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_the_shell_agent_works_delegates_and_compacts(tmp_path: Path, stream: bool) -> None:
    """Roles and branches follow from what it sends; every prompt extends what was recorded where it says so."""

    async def steps() -> None:
        workspace = tmp_path / "work"
        workspace.mkdir()
        (workspace / "a.txt").write_text("x" * 120)
        config = small_config()
        config.debug.record_inputs = True
        async with world(tmp_path / "run", config) as here:
            engine = await here.engine(InTurn(spelled("five"), called("cat a.txt"), called("cat a.txt"), spelled("notes"), spelled("done")))
            engine.faults = ["ok", "cut:3", "busy"]
            here.route(0)
            code, output = await run_harness(here, "Look at a.txt\nAlso: Count to five", workspace, stream=stream)
            assert (code, output) == (0, "done\n")
            begins = [record for record in here.records() if isinstance(record, CallBegin)]
            assert [(begin.role, begin.branch, begin.thread) for begin in begins] == [
                ("sub_agent", "sub_agent", "sub-1"),
                ("main", "root", "main"),
                ("main", "", "main"),
                ("compaction", "", "main"),
                ("main", "compaction", "main"),
            ]
            assert [begin.parent for begin in begins] == [None, None, f"{EXECUTION}/1", f"{EXECUTION}/2", None]
            assert [record.finish for record in here.ends()] == ["stop", "tool_calls", "tool_calls", "stop", "stop"]
            assert len({record.call for record in here.records() if isinstance(record, CallEnd)}) == 5
            settings = here.gateway.host._machine._shard.settings  # type: ignore[union-attr]
        fresh, num = GatewayMachine(settings), 0
        for now, told, effects in read_inputs(here.folder.inputs("gateway-0", 1)):
            assert fresh.handle(now, told) == effects
            num += 1
        assert num > 50

    asyncio.run(steps())


def test_the_gateway_module_loads_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, gyre_hpc.processes.gateway; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
    assert Gateway is not None
