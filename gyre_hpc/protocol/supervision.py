"""To and from the supervisor: registration, the directory of live processes, restart orders, the end of the run."""

import msgspec


class Register(msgspec.Struct, frozen=True, tag="register"):
    """A process says where it can be reached; again every few seconds (its heartbeat)."""

    process: str
    """Name: controller, gateway-0, runner-0, cell-3, scripted-0."""
    incarnation: int
    url: str
    pid: int


class Entry(msgspec.Struct, frozen=True):
    """One process in the directory. `url` is empty until it registered; `lost` tells why the last one ended."""

    process: str
    incarnation: int
    url: str = ""
    lost: str = ""
    aside: bool = False
    """It is kept stopped for the rest of the run."""


class Directory(msgspec.Struct, frozen=True, tag="directory"):
    """All processes of the run; sent by the supervisor at each change and every few seconds."""

    number: int
    entries: tuple[Entry, ...] = ()


class RestartCell(msgspec.Struct, frozen=True, tag="restart_cell"):
    """controller -> supervisor: end this incarnation of the cell and start the next one (new rendezvous id)."""

    cell: str
    incarnation: int
    """The one to end; a newer one is left alone."""
    reason: str


class SetAside(msgspec.Struct, frozen=True, tag="set_aside"):
    """controller -> supervisor: keep this cell stopped for the rest of the run."""

    cell: str
    reason: str


class FinishRun(msgspec.Struct, frozen=True, tag="finish_run"):
    """controller -> supervisor: the run is over; stop everything and exit with this code."""

    exit_code: int
    reason: str
