"""The director's end of the cell processes: started, led through role switches, killed, started again."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import orjson

from gyre_hpc.errors import GyreError
from gyre_hpc.rehearsal.cell_process import TOKEN
from gyre_hpc.shell.lifetime import child_environment
from gyre_hpc.shell.timers import after

MODULES = {"scripted": "gyre_hpc.rehearsal.cell", "embedded": "gyre_hpc.rehearsal.embedded_cell"}
START_DEADLINE_S = 120.0
_ORDER_DEADLINE_S = 30.0


class CellFailed(GyreError):
    """A rehearsed cell did not start or ended by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Happening:
    """A cell stands still in the middle of an answer."""

    cell: int
    moment: str
    rid: str
    num_output: int


class Cell:
    """One process. Lifecycle: start -> serve, leave, update, go_on -> close; `kill` at any time, then start again."""

    def __init__(self, number: int, argv: list[str], run_token: str, log: Path, happened: Callable[[Happening], None]) -> None:
        self.number, self.name, self.term = number, f"cell-{number}", 0
        self.url, self._director_url, self.is_serving, self.version = "", "", False, ""
        self._argv, self._run_token, self._log, self._happened = argv, run_token, log, happened
        self._process: Process | None = None
        self._http: aiohttp.ClientSession | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises CellFailed."""
        environment = child_environment({TOKEN: self._run_token})
        with self._opened_log() as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *self._argv, stdin=PIPE, stdout=PIPE, stderr=log, env=environment, start_new_session=True
            )
        assert self._process.stdout is not None
        deadline = after(START_DEADLINE_S, self._process.kill)
        line = await self._process.stdout.readline()
        deadline.cancel()
        if not line:
            await self._process.wait()
            raise CellFailed(f"{self.name} did not start: {_last_line(self._log)}")
        urls = json.loads(line)
        self.url, self._director_url = str(urls["engine"]), str(urls["director"])
        self._http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._run_token}"})
        listening = asyncio.get_running_loop().create_future()
        self._listening = asyncio.get_running_loop().create_task(self._listen(listening))
        await listening

    async def serve(self, version: str) -> None:
        """Take calls, under a new term."""
        self.term += 1
        await self._order("serve", term=self.term, version=version)
        self.is_serving, self.version = True, version

    async def leave(self) -> int:
        """End all calls with what they have; how many."""
        self.term += 1
        self.is_serving = False
        return int((await self._order("leave", term=self.term))["aborted"])

    async def update(self, version: str) -> None:
        await self._order("update", version=version)
        self.version = version

    async def go_on(self) -> None:
        await self._order("go_on")

    async def seen(self) -> list[Mapping[str, Any]]:
        """Every answer it gave, as its engine knows it; nothing from a cell that was killed."""
        if self._http is None or self._process is None:
            return []
        async with self._http.get(
            f"{self._director_url}/rehearsal/seen", timeout=aiohttp.ClientTimeout(total=_ORDER_DEADLINE_S)
        ) as response:
            return list(orjson.loads(await response.read()))

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """Without a word to anybody."""
        self.is_serving = False
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        await self.close()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            if process.returncode is None:
                process.terminate()
            await process.wait()

    def _opened_log(self) -> BinaryIO:
        return open(self._log, "ab")

    async def _order(self, order: str, **fields: Any) -> Mapping[str, Any]:
        assert self._http is not None
        timeout = aiohttp.ClientTimeout(total=_ORDER_DEADLINE_S)
        async with self._http.post(f"{self._director_url}/rehearsal/{order}", data=orjson.dumps(fields), timeout=timeout) as response:
            body = await response.read()
            if response.status != 200:
                raise CellFailed(f"{self.name} {order}: {response.status} {body[:200].decode(errors='replace')}")
            return orjson.loads(body) if body else {}

    async def _listen(self, listening: asyncio.Future[None]) -> None:
        assert self._http is not None
        try:
            async with self._http.get(f"{self._director_url}/rehearsal/moments", timeout=aiohttp.ClientTimeout(total=None)) as response:
                async for line in response.content:
                    if not listening.done():
                        listening.set_result(None)
                    if line.strip():
                        told = orjson.loads(line)
                        self._happened(Happening(cell=self.number, **told))
        except aiohttp.ClientError as error:
            if not listening.done():
                listening.set_exception(CellFailed(f"{self.name}: {error}"))


def cell_argv(engine: str, *, harness: str, tokenizer: str, template: str, interface: str, max_context: int) -> list[str]:
    """Module and arguments of a cell process."""
    return [
        MODULES[engine], "--harness", harness, "--tokenizer", tokenizer, "--template", template, "--interface", interface,
        "--max-context", str(max_context),
    ]  # fmt: skip


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if os.path.exists(log) else []
    return lines[-1] if lines else "no word"
