"""Assembles one gateway shard: journal, machine, host, surface. Used by the process main and by tests in one process."""

import errno
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import cast

from gyre_hpc.chat import create_chat_format
from gyre_hpc.clock import monotonic_s, unix_s
from gyre_hpc.gateway.bodies import Bodies
from gyre_hpc.gateway.connections import Connections
from gyre_hpc.gateway.earlier import read_earlier
from gyre_hpc.gateway.engine_client import EngineClient
from gyre_hpc.gateway.journal_writer import Done, JournalWriter, each_of_journal
from gyre_hpc.gateway.rendering import Rendering, measure_cpu
from gyre_hpc.gateway.surface import HarnessSurface
from gyre_hpc.harnesses import create_harness
from gyre_hpc.machines.base import Received, Restarted
from gyre_hpc.machines.call import GatewayMachine, GatewaySettings
from gyre_hpc.machines.call.actions import (
    Confirm,
    Earlier,
    EngineAttempt,
    HangUp,
    KeepAlive,
    Leaving,
    MeasureCpu,
    Parse,
    Refuse,
    Render,
    Reply,
    Say,
)
from gyre_hpc.protocol.journal import ExecutionEnd, Record
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.host import Host, NoteSink
from gyre_hpc.shell.log import MachineLog
from gyre_hpc.whole_file import write_whole


class Gateway:
    """One shard, running. Lifecycle: start() -> serve until host.ended -> close()."""

    def __init__(self, birth: Birth, note: NoteSink, pid: int) -> None:
        config = birth.config
        self._birth, self._pid = birth, pid
        self._chat_format = create_chat_format(config.model)
        journal, folder = config.journal, birth.folder
        shards = tuple(f"gateway-{index}" for index in range(config.cluster.gateways))
        earlier = read_earlier(folder.journal, birth.name, shards, birth.attempt) if config.replay.enabled else ()
        own = each_of_journal(folder.journal, birth.name, birth.attempt)
        self._records: Iterable[Earlier | Record] = chain(earlier, own)
        self._engines = EngineClient(birth.run_token)
        self._rendering = rendering = Rendering(self._chat_format)
        self._connections = Connections(rendering.logprobs)
        writer = JournalWriter(folder.journal, birth.name, birth.attempt, fsync=journal.fsync, segment_bytes=journal.segment_bytes)
        self.host = Host(
            name=birth.name,
            attempt=birth.attempt,
            run_token=birth.run_token,
            addresses=birth.addresses,
            actions={
                EngineAttempt: self._engines.attempt,
                Render: rendering.render,
                Parse: rendering.parse,
                MeasureCpu: measure_cpu,
                KeepAlive: self._connections.keep_alive,
                Say: self._connections.say,
                Reply: self._connections.reply,
                Refuse: self._connections.refuse,
                Confirm: self._connections.confirm,
                HangUp: self._connections.hang_up,
            },
            note=note,
            at_once={Render: rendering.render_short, Parse: rendering.parsed},
            machine_log=cast(MachineLog, _Log(writer, self._forget)),
            record_to=folder.inputs(birth.name, birth.attempt) if config.debug.record_inputs else None,
            max_body_bytes=config.gateway.max_body_bytes,
        )
        self._note: NoteSink = note
        for notice in self._chat_format.notices:
            note("chat_format", {"notice": notice})
        self._machine: GatewayMachine | None = None
        self._surface: HarnessSurface | None = None

    async def start(self) -> str:
        """Listen, rebuild the machine from the journal; return the base URL."""
        birth, config = self._birth, self._birth.config
        surface = HarnessSurface(
            run_token=birth.run_token,
            model=config.model.path or f"gyre-{config.experiment}",
            bodies=Bodies(config.gateway.body_deadline_s),
            harness=create_harness(config.harness.name),
            rendering=self._rendering,
            connections=self._connections,
            tell=self.host.tell,
            replays=config.replay.enabled,
        )
        surface.add_to(self.host.app)
        self._surface = surface
        url = await self._bind()
        settings = GatewaySettings.of(
            config,
            register=Register(process=birth.name, incarnation=birth.incarnation, url=url, pid=self._pid),
            # Whole milliseconds: a recording (debug.record_inputs) tells it again from any unix time in its effects.
            clock_offset_s=round(unix_s() - monotonic_s(), 3),
            stop_ids=self._chat_format.stop_ids,
        )
        machine = GatewayMachine(settings)
        # A recording holds them all.
        records = tuple(self._records) if config.debug.record_inputs else self._records
        self.host.run(machine, Restarted(records))
        # Where the journal is damaged it has counted a part of it only, and says nothing.
        self._machine, self._records = machine, ()
        return url

    async def close(self) -> None:
        """What came goes to the journal. The last word is what was counted: the status that knows it too is of one attempt only."""
        if self._machine is not None:
            self.host.tell(Received(self._birth.name, Leaving()))
            self._note("tokens", {"counts": self._machine.tokens})
        await self.host.close()
        await self._engines.close()

    def _forget(self, execution: str) -> None:
        self._engines.forget(execution)
        if self._surface is not None:
            self._surface.forget(execution)

    async def _bind(self) -> str:
        """The port of the shard's last start if there was one: harnesses hold its URL."""
        birth, interface = self._birth, self._birth.config.network.interface
        kept = port_file(birth)
        port = int(kept.read_text()) if kept.exists() else 0
        try:
            url = await self.host.bind(interface, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == 0:
                raise
            self._note("port_lost", {"reason": f"port {port} was taken by somebody else; running harnesses will not find this shard again"})
            url = await self.host.bind(interface, 0)
        bound = url.rpartition(":")[2]
        # A shard must be able to start again on a full disk.
        if bound != str(port):
            write_whole(kept, bound.encode())
        return url


class _Log:
    """The journal is this machine's log: the same append(record, done), other framing. Ends of executions are told on: nothing else of the
    shell hears of them."""

    def __init__(self, journal: JournalWriter, ended: Callable[[str], None]) -> None:
        self._journal, self._ended = journal, ended
        self.close = journal.close

    def append(self, record: Record, done: Done) -> None:
        if isinstance(record, ExecutionEnd):
            self._ended(record.execution)
        self._journal.append(record, done)


def port_file(birth: Birth) -> Path:
    """state/<shard>-<attempt>.port: where this shard listens, kept over its restarts within an attempt."""
    return birth.folder.root / "state" / f"{birth.name}-{birth.attempt}.port"
