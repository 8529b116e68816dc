"""The supervisor of a run's first node: binds the registry, runs the supervision machine until every child is gone."""

import asyncio
import json
import logging
import os
from dataclasses import dataclass

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.deadlines import last_save_s
from gyre_hpc.machines.base import Received
from gyre_hpc.machines.supervision import (
    STOPPED,
    SUPERSEDED,
    CheckAttempts,
    DumpStacks,
    EndRun,
    KillProcess,
    MirrorDirectory,
    ReadCommands,
    SpawnProcess,
    SupervisionMachine,
    TerminateProcess,
    WriteAnswer,
)
from gyre_hpc.protocol.node_map import FIRST, RunStart
from gyre_hpc.protocol.supervision import FinishRun
from gyre_hpc.shell.host import Action, Host, NoteSink
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.node_map import read_map
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.children import Children, Tell
from gyre_hpc.supervisor.commands import Command, Commands, settings_for
from gyre_hpc.supervisor.here import END_WITHIN_S, Here, live
from gyre_hpc.supervisor.mirror import write_directory, write_private
from gyre_hpc.supervisor.people import People

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The SLURM job that this start of the run is; as in RunStart."""

    id: str = ""
    restarts: int = 0


class Supervisor:
    """One attempt of a run."""

    def __init__(self, here: Here, attempt: int, job: Job) -> None:
        """Raises OSError, UserError."""
        self._here, self._attempt, self._job = here, attempt, job
        self._nodes = read_map(here.config, here.folder, attempt)
        self._exit_code = SUPERSEDED
        self._host: Host | None = None
        self._commands: Commands | None = None
        self._children = Children(here.folder, self._command_for)

    async def run(self, note: NoteSink) -> int:
        """Exit code of the run."""
        here = self._here
        self._host = host = here.make_host(self._attempt, self._actions(), note, {})
        url = await host.bind(here.config.network.interface)
        self._commands = here.commands(self._attempt, url, self._nodes)
        end_with_parent(self._stop, within_s=END_WITHIN_S + round(last_save_s(here.config)))
        write_private(here.folder.start(self._attempt), msgspec.json.encode(self._start(url)))
        await live(host, SupervisionMachine(settings_for(here.config, self._attempt, self._nodes, here.offer().kind)), note)
        await self._children.close()
        return self._exit_code

    def _start(self, url: str) -> RunStart:
        return RunStart(
            attempt=self._attempt,
            url=url,
            job=self._job.id,
            restarts=self._job.restarts,
            host=self._here.host,
            pid=os.getpid(),
            offer=self._here.offer(),
            unix_s=unix_s(),
        )

    def _command_for(self, action: SpawnProcess) -> Command:
        assert self._commands is not None
        return self._commands.build(action.process, action.incarnation, action.part, action.rendezvous)

    def _actions(self) -> dict[type, Action]:
        children = self._children
        people = People(self._here.folder, self._attempt)
        return {
            SpawnProcess: children.spawn,
            DumpStacks: children.stacks,
            TerminateProcess: children.terminate,
            KillProcess: children.kill,
            MirrorDirectory: self._mirror,
            CheckAttempts: self._check_attempts,
            ReadCommands: people.read,
            WriteAnswer: people.answer,
            EndRun: self._end,
        }

    def _stop(self, reason: str) -> None:
        assert self._host is not None
        self._host.tell(Received(FIRST, FinishRun(STOPPED, reason)))

    async def _mirror(self, key: str, action: MirrorDirectory, tell: Tell) -> None:
        await asyncio.to_thread(write_directory, self._here.folder.endpoints, action.directory)

    async def _check_attempts(self, key: str, action: CheckAttempts, tell: Tell) -> int:
        return await asyncio.to_thread(highest_attempt, self._here.folder.attempts)

    async def _end(self, key: str, action: EndRun, tell: Tell) -> None:
        assert self._host is not None
        self._exit_code = action.exit_code
        end = json.dumps({"exit_code": action.exit_code, "reason": action.reason, "time": unix_s()})
        path = end_of(self._here.folder, self._attempt)
        try:
            if path.parent.is_dir():
                write_private(path, end.encode())
        except OSError as error:  # a full disk: our exit code tells the launcher all the same
            log.error("%s cannot be written (%s); the run ends with %d: %s", path, error, action.exit_code, action.reason)
        self._host.end(action.reason)
