"""The supervisor process: binds the registry, runs the supervision machine until every child is gone."""

import asyncio
import json
import logging
import os
import resource
from typing import Any

from gyre_hpc.clock import unix_s
from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.machines.base import Received, Restarted
from gyre_hpc.machines.supervision import (
    SUPERSEDED,
    CheckAttempts,
    EndRun,
    KillProcess,
    MirrorDirectory,
    SpawnProcess,
    SupervisionMachine,
    TerminateProcess,
)
from gyre_hpc.ports import restrict
from gyre_hpc.protocol.supervision import FinishRun
from gyre_hpc.shell.host import Host, NoteSink
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.children import Children, Tell
from gyre_hpc.supervisor.commands import MODULES, Command, Commands, settings_for
from gyre_hpc.supervisor.devices import devices_here
from gyre_hpc.supervisor.mirror import write_directory, write_private

log = logging.getLogger(__name__)
STOPPED = 130
"""Exit code of a run that was told to stop before its end."""
_END_WITHIN_S = 90


class Supervisor:
    """One run on one node."""

    def __init__(self, folder: RunFolder, attempt: int, modules: str = MODULES) -> None:
        self._folder, self._attempt, self._modules = folder, attempt, modules
        self._config = load_config(folder.config)
        self._scratch = scratch_folder(self._config, folder)
        restrict(self._config.network.port_range)
        self._settings = settings_for(self._config, attempt)
        self._devices = devices_here(os.environ)
        self._exit_code = SUPERSEDED
        self._host: Host | None = None
        self._url = ""

    async def run(self, note: NoteSink) -> int:
        """Exit code of the run."""
        name, config = self._settings.name, self._config
        self._host = host = Host(
            name=name,
            attempt=self._attempt,
            run_token=self._folder.token.read_text().strip(),
            addresses={},
            actions=self._actions(),
            note=note,
            record_to=self._folder.inputs(name, self._attempt) if config.debug.record_inputs else None,
        )
        self._url = await host.bind(config.network.interface)
        end_with_parent(self._stop, within_s=_END_WITHIN_S)
        host.run(SupervisionMachine(self._settings), Restarted())
        log.info("supervisor ends: %s", await host.ended)
        await host.close()
        note("cpu", {"cpu_s": _cpu_s(resource.RUSAGE_SELF), "children_s": _cpu_s(resource.RUSAGE_CHILDREN)})
        return self._exit_code

    def _command_for(self, process: str, incarnation: int) -> Command:
        commands = Commands(
            config=self._config,
            run=str(self._folder.root),
            scratch=str(self._scratch),
            attempt=self._attempt,
            supervisor_url=self._url,
            devices=self._devices,
            modules=self._modules,
        )
        return commands.build(process, incarnation)

    def _actions(self) -> dict[type, Any]:
        children = Children(self._folder, self._command_for)
        return {
            SpawnProcess: children.spawn,
            TerminateProcess: children.terminate,
            KillProcess: children.kill,
            MirrorDirectory: self._mirror,
            CheckAttempts: self._check_attempts,
            EndRun: self._end,
        }

    def _stop(self, reason: str) -> None:
        assert self._host is not None
        self._host.tell(Received(self._settings.name, FinishRun(STOPPED, reason)))

    async def _mirror(self, key: str, action: MirrorDirectory, tell: Tell) -> None:
        await asyncio.to_thread(write_directory, self._folder.endpoints, action.directory)

    async def _check_attempts(self, key: str, action: CheckAttempts, tell: Tell) -> int:
        return await asyncio.to_thread(highest_attempt, self._folder.attempts)

    async def _end(self, key: str, action: EndRun, tell: Tell) -> None:
        assert self._host is not None
        self._exit_code = action.exit_code
        end = json.dumps({"exit_code": action.exit_code, "reason": action.reason, "time": unix_s()})
        path = end_of(self._folder, self._attempt)
        try:
            if path.parent.is_dir():
                write_private(path, end.encode())
        except OSError as error:  # a full disk: our exit code tells the launcher all the same
            log.error("%s cannot be written (%s); the run ends with %d: %s", path, error, action.exit_code, action.reason)
        self._host.end(action.reason)


def _cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
