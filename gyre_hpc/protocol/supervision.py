"""To and from the supervisor: registration, the directory of live processes, restart orders, the end of the run.

Between supervisors: whole documents, numbered; the newest wins (docs/decisions/0018).
"""

import enum

import msgspec


class Register(msgspec.Struct, frozen=True, tag="register"):
    """A process says where it can be reached; again every few seconds (its heartbeat)."""

    process: str
    """Name: controller, gateway-0, runner-0, cell-3, scripted-0."""
    incarnation: int
    url: str
    pid: int
    directory: int = -1
    """Number of the newest directory that it has; -1: none. Who has the newest is not sent it again."""


class Entry(msgspec.Struct, frozen=True):
    """One process in the directory. `url` is empty until it registered; `lost` tells why the last one ended."""

    process: str
    incarnation: int
    url: str = ""
    lost: str = ""
    aside: bool = False
    """It is kept stopped for the rest of the run."""
    held: bool = False
    """A person looks at it: it is not started again until it is released."""


class Directory(msgspec.Struct, frozen=True, tag="directory"):
    """All processes of the run; sent by the supervisor at changes, and every few seconds to those that have not said that they have it."""

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


class WriteStacks(msgspec.Struct, frozen=True, tag="write_stacks"):
    """controller -> supervisor: these wait for each other and are late: each should write its Python stacks. Nothing is ended by it."""

    processes: tuple[str, ...]
    reason: str
    """Short; names the step."""


class SaveNow(msgspec.Struct, frozen=True, tag="save_now"):
    """supervisor -> controller: the run is stopped in order; what no checkpoint holds is to be saved first. Again until answered."""

    reason: str


class SaveAnswer(msgspec.Struct, frozen=True, tag="save_answer"):
    """controller -> supervisor: whether the stop should wait. Sent again when that changes."""

    waits_s: float
    """At most so long, from now; 0: there is nothing (more) to wait for."""
    reason: str


class RendezvousOpen(msgspec.Struct, frozen=True, tag="rendezvous_open"):
    """Agent of part 0 of a cell over several nodes -> supervisor-0: its store listens, the other parts may come."""

    process: str
    incarnation: int
    address: str
    """host:port of the store."""


class Wanted(enum.Enum):
    """What a child of another node should do."""

    run = "run"
    terminate = "terminate"
    """SIGTERM, once."""
    kill = "kill"


class ChildOrder(msgspec.Struct, frozen=True):
    """One child that supervisor-0 wants on a node, or wants gone."""

    process: str
    incarnation: int
    wanted: Wanted = Wanted.run
    part: int = 0
    """Of a cell over several nodes: which of its nodes this is."""
    rendezvous: str = ""
    """Where part 0 of the cell listens; empty for part 0 and for cells within one node."""
    stacks: int = 0
    """How often it was asked for its Python stacks: each time once."""


class NodeOrders(msgspec.Struct, frozen=True, tag="node_orders"):
    """supervisor-0 -> another node's supervisor: every child that concerns it. One that ended stays named until its end was taken."""

    number: int
    """Grows with each sending, so that a late copy of an old one is no sign of life."""
    children: tuple[ChildOrder, ...] = ()
    is_over: bool = False
    """The run is over here: end once no child is left."""
    life: str = ""
    """Whom it is for: another life of the node pays no heed to it."""
    refused: str = ""
    """With is_over: why the node has no part in the run; empty where it had one, to the run's end."""


class ChildEnd(msgspec.Struct, frozen=True):
    """A child is gone. Told until the orders name it no more."""

    process: str
    incarnation: int
    code: int
    """Exit code; negative = killed by that signal."""
    reason: str = ""
    """Why it could not even be started."""


class NodeOffer(msgspec.Struct, frozen=True):
    """What a node has."""

    host: str
    """Name, as SLURM and people know it."""
    address: str
    """It listens there."""
    devices: tuple[str, ...] = ()
    """GPUs, as CUDA_VISIBLE_DEVICES names them."""
    kind: str = ""
    """What kind of GPU; empty without any. A run takes cells of one kind."""
    cells: int = 0
    """Cells that a node nobody planned has room for; 0 for a node of the run's own allocation."""


class NodeReport(msgspec.Struct, frozen=True, tag="node_report"):
    """A node's supervisor -> supervisor-0: its heartbeat and all it has to say."""

    node: str
    """supervisor-2; a satellite job's: supervisor-j<job>n<node>."""
    life: str
    """Drawn anew at each start: another life has none of the earlier one's children."""
    number: int
    seen: int
    """Number of the newest orders that are being carried out; -1: none."""
    url: str
    offer: NodeOffer
    running: tuple[tuple[str, int], ...] = ()
    """(process, incarnation) of each living child, parts not told apart: a node has one part of a cell."""
    ended: tuple[ChildEnd, ...] = ()
    leaving: str = ""
    """Why it ends by itself as soon as no child is left (a satellite job that was cancelled); empty: it stays."""
    directory: int = -1
    """As in Register."""
