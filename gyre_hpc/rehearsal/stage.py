"""Gateway and routing table of one scenario, in front of cells that outlive it. The table is fed as a controller feeds it."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.gateway.journal_writer import read_journal
from gyre_hpc.gateway.run import Gateway
from gyre_hpc.machines.base import Received
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Record
from gyre_hpc.protocol.to_gateway import Row, Table
from gyre_hpc.rehearsal.cells import Cell
from gyre_hpc.rehearsal.wiretap import Wiretap
from gyre_hpc.shell.arguments import Birth
from gyre_hpc.shell.timers import Timers

SHARD, ATTEMPT = "gateway-0", 1
_RENEW, _RENEW_S = "table", 1.0


class Stage:
    """Lifecycle: start -> route, restart_gateway -> close."""

    def __init__(self, folder: Path, config: Config, run_token: str, cells: list[Cell]) -> None:
        self.folder, self.config, self.run_token, self.cells = RunFolder(folder), config, run_token, cells
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.wiretap = Wiretap()
        self.url = ""
        self._gateway: Gateway | None = None
        self._incarnation = 0
        self._number = 0
        self._timers = Timers(lambda key: self.route())

    async def start(self) -> None:
        """Also after the shard went: same port, from the journal."""
        self._incarnation += 1
        if self._incarnation > 1:
            self.wiretap.events.append(["restart"])
        birth = Birth(
            name=SHARD,
            attempt=ATTEMPT,
            incarnation=self._incarnation,
            supervisor_url="http://127.0.0.1:1",
            folder=self.folder,
            config=self.config,
            run_token=self.run_token,
        )
        self._gateway = Gateway(birth, self._note, os.getpid())
        self.wiretap.add_to(self._gateway.host.app)
        self.url = await self._gateway.start()
        self.route()

    def route(self) -> None:
        """A table with every cell that serves; again every second, for its lease is short."""
        self._timers.set(_RENEW, _RENEW_S)
        if self._gateway is None:
            return
        self._number += 1
        rows = tuple(Row(cell.name, cell.url, cell.term, Version.parse(cell.version)) for cell in self.cells if cell.is_serving)
        self._gateway.host.tell(Received("controller", Table(self._number, self.config.gateway.table_lease_s, rows)))

    async def stop_gateway(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.close()

    async def close(self) -> None:
        self._timers.close()
        with contextlib.suppress(OSError):
            await self.stop_gateway()

    def records(self) -> tuple[Record, ...]:
        return read_journal(self.folder.journal, SHARD, ATTEMPT)

    def counters(self) -> dict[str, int]:
        """The last word of every incarnation of the shard, and what it counts now."""
        last: dict[str, int] = {}
        for kind, fields in self.notes:
            if kind == "tokens":
                last = dict(fields["counts"])
        return last

    def _note(self, kind: str, fields: Mapping[str, Any]) -> None:
        self.notes.append((kind, dict(fields)))
