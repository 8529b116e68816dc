"""The supervisor of any other node: does what supervisor-0 orders, and ends with its children when no orders come."""

import secrets

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.node import NodeMachine, NodeSettings
from gyre_hpc.machines.supervision import SUPERSEDED, DumpStacks, EndRun, KillProcess, SpawnProcess, TerminateProcess
from gyre_hpc.protocol.node_map import FIRST, RunStart
from gyre_hpc.protocol.supervision import FinishRun
from gyre_hpc.shell.host import Action, Host, NoteSink
from gyre_hpc.shell.lifetime import end_with_parent
from gyre_hpc.shell.node_map import read_map
from gyre_hpc.supervisor.children import Children, Tell
from gyre_hpc.supervisor.commands import Command
from gyre_hpc.supervisor.here import END_WITHIN_S, Here, live

FENCE_FIRST_S = 10.0
"""So much earlier than supervisor-0 gives it up does a node end what it runs."""


class NodeSupervisor:
    """One node of one attempt."""

    def __init__(self, here: Here, start: RunStart, cells: int = 0) -> None:
        """cells: room for cells, on a node that nobody planned. Raises OSError, UserError."""
        self._here, self._start, self._cells = here, start, cells
        nodes = read_map(here.config, here.folder, start.attempt)
        self._commands = here.commands(start.attempt, start.url, nodes, cells)
        self._exit_code = SUPERSEDED
        self._host: Host | None = None
        self._children = Children(here.folder, self._command_for)

    async def run(self, note: NoteSink) -> int:
        """Exit code: 0 at the run's end, SUPERSEDED, NODE_LOST."""
        here = self._here
        self._host = host = here.make_host(self._start.attempt, self._actions(), note, {FIRST: self._start.url})
        url = await host.bind(here.config.network.interface)
        end_with_parent(self._stop, within_s=END_WITHIN_S)
        await live(host, NodeMachine(self._settings(url)), note)
        await self._children.close()
        return self._exit_code

    def _settings(self, url: str) -> NodeSettings:
        return NodeSettings(
            name=self._here.name,
            life=secrets.token_hex(8),
            url=url,
            offer=self._here.offer(self._cells),
            silence_s=self._here.config.cluster.slurm.node_silence_s - FENCE_FIRST_S,
        )

    def _actions(self) -> dict[type, Action]:
        children = self._children
        return {
            SpawnProcess: children.spawn,
            DumpStacks: children.stacks,
            TerminateProcess: children.terminate,
            KillProcess: children.kill,
            EndRun: self._end,
        }

    def _command_for(self, action: SpawnProcess) -> Command:
        return self._commands.build(action.process, action.incarnation, action.part, action.rendezvous)

    def _stop(self, reason: str) -> None:
        assert self._host is not None
        self._host.tell(Received(self._here.name, FinishRun(0, reason)))

    async def _end(self, key: str, action: EndRun, tell: Tell) -> None:
        assert self._host is not None
        self._exit_code = action.exit_code
        self._host.end(action.reason)
