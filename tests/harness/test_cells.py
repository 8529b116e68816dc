"""Rehearsed cells: processes that stand still where the script says, go on, leave with their tokens, and die."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import psutil
import pytest

from gyre_hpc.chat import create_chat_format
from gyre_hpc.chat.base import Message
from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.rehearsal.base import VERSIONS
from gyre_hpc.rehearsal.cells import Cell, CellFailed, Happening, cell_argv
from gyre_hpc.rehearsal.company import TOKENIZER
from gyre_hpc.rehearsal.dialects import dialect_of
from gyre_hpc.rehearsal.scenarios import scenario_named
from gyre_hpc.rehearsal.script import instruction, mark

TOKEN = "secret"
FORMAT = create_chat_format(ModelConfig(tokenizer=str(TOKENIZER), template="chatml"))
DISTURBED = FORMAT.render(
    [Message(role="user", content=instruction(scenario_named("role_switch"), dialect_of("shell_agent")) + mark("main", 0))], []
)
"""The next answer is the one in which something happens."""


async def generate(cell: Cell, ids: list[int], position: int = 0) -> tuple[list[int], str]:
    """(new ids, finish reason)."""
    custom = {"key": "00" * 16, "position": position}
    body = {
        "rid": f"attempt/train-0-0-0/{position}/1", "input_ids": ids, "stream": True, "incremental": True, "return_logprob": True,
        "sampling_params": {"max_new_tokens": 1000, "stop_token_ids": FORMAT.stop_ids, "custom_params": custom},
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Gyre-Term": str(cell.term)}
    given, finish = list[int](), ""
    async with aiohttp.ClientSession() as http, http.post(f"{cell.url}/generate", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                given += event["output_ids"]
                finish = (event["meta_info"]["finish_reason"] or {}).get("type", finish)
    return given, finish


def with_cells(folder: Path, engine: str, steps: Callable[[list[Cell], "asyncio.Queue[Happening]"], Awaitable[None]]) -> None:
    async def live() -> None:
        happened: asyncio.Queue[Happening] = asyncio.Queue()
        argv = cell_argv(
            engine, harness="shell_agent", tokenizer=str(TOKENIZER), template="chatml", interface="127.0.0.1", max_context=4096
        )
        cells = [Cell(number, argv, TOKEN, folder / f"cell-{number}.log", happened.put_nowait) for number in range(2)]
        try:
            for cell in cells:
                await cell.start()
                await cell.serve(VERSIONS[0])
            await steps(cells, happened)
        finally:
            for cell in cells:
                await cell.close()

    asyncio.run(live())


@pytest.mark.parametrize("engine", ["scripted", "embedded"])
def test_an_answer_goes_on_at_another_cell_where_the_first_one_left_it(engine: str, tmp_path: Path) -> None:
    async def steps(cells: list[Cell], happened: "asyncio.Queue[Happening]") -> None:
        begun = asyncio.create_task(generate(cells[0], DISTURBED))
        told = await happened.get()
        assert (told.cell, told.moment) == (0, "role_switch") and told.num_output > 10
        assert await cells[0].leave() == 1
        first, finish = await begun
        assert finish == "abort" and len(first) >= told.num_output
        rest, finish = await generate(cells[1], DISTURBED + first, position=len(first))
        assert finish == "stop" and happened.empty()
        answer = FORMAT.parse(first + rest)
        assert answer.content.startswith(mark("main", 1)) and len(answer.tool_calls) == 1
        seen = await cells[1].seen()
        assert [(one["finish"], one["num_output"]) for one in seen] == [("stop", len(first + rest))]

    with_cells(tmp_path, engine, steps)


def test_a_killed_cell_is_gone_and_can_be_started_again(tmp_path: Path) -> None:
    async def steps(cells: list[Cell], happened: "asyncio.Queue[Happening]") -> None:
        begun = asyncio.create_task(generate(cells[0], DISTURBED))
        await happened.get()
        children = psutil.Process(os.getpid()).children()
        await cells[0].kill()
        with pytest.raises(aiohttp.ClientError):
            await begun
        assert not cells[0].is_alive and len(psutil.wait_procs(children, timeout=0)[1]) == len(children) - 1
        assert await cells[0].seen() == []
        await cells[0].start()
        await cells[0].serve(VERSIONS[0])
        again = asyncio.create_task(generate(cells[0], DISTURBED))
        await happened.get()
        await cells[0].go_on()
        assert (await again)[1] == "stop"

    with_cells(tmp_path, "scripted", steps)


def test_a_cell_that_does_not_start_says_why(tmp_path: Path) -> None:
    argv = cell_argv("scripted", harness="nobody", tokenizer=str(TOKENIZER), template="chatml", interface="127.0.0.1", max_context=4096)
    cell = Cell(0, argv, TOKEN, tmp_path / "cell.log", lambda happening: None)
    with pytest.raises(CellFailed, match="no rehearsal for it"):
        asyncio.run(cell.start())
