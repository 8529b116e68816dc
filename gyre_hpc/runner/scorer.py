"""The runner's end of the scorer process: one request at a time; whoever is cancelled takes the process with it."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

import msgspec

from gyre_hpc.machines.execution import Scored
from gyre_hpc.runner.scoring import Answer, Request
from gyre_hpc.shell.lifetime import child_environment


class ScoringFailed(Exception):
    """The suite raised, or the scorer died."""


class Scorer:
    """Starts its process when there is something to score."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def score(self, split: str, task: int, workspace: Path, begins: Callable[[], None]) -> Scored:
        """`begins` is called when it is this workspace's turn. Raises ScoringFailed."""
        async with self._turn:
            begins()
            try:
                answer = await self._ask(Request(split, task, str(workspace)))
            except BaseException:
                await self.close()
                raise
        if answer.score is None:
            raise ScoringFailed(f"{answer.error}: {answer.reason}")
        return answer.score

    async def close(self) -> None:
        """Kill the process; the next request starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()

    async def _ask(self, request: Request) -> Answer:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gyre_hpc.processes.scorer", "--run", str(self._run),
                stdin=PIPE, stdout=PIPE, env=child_environment(),
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(request) + b"\n")
        line = await process.stdout.readline()
        if not line:
            raise ScoringFailed("the scorer died")
        return msgspec.json.decode(line, type=Answer)
