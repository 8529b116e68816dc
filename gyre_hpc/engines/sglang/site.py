"""Where one part of a cell's server runs, and as what: said once, by whoever knows the cell."""

import enum
from dataclasses import dataclass, field
from pathlib import Path

from gyre_hpc.engines.sglang.parts import Nodes

LOOPBACK = "127.0.0.1"


class Part(enum.Enum):
    """Of a server in prefill-decode disaggregation (engine.sglang.kv=pd); the values are SGLang's."""

    whole = "null"
    prefill = "prefill"
    decode = "decode"


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Of the server on one node of a cell."""

    folder: Path
    """Node-local, the same for every incarnation of this cell (a server is found there again), at most LONGEST_FOLDER bytes long."""
    cache: Path
    """Where SGLang's environment is looked for."""
    world: int = 1
    """Ranks of the cell, which the server divides its model among."""
    nodes: Nodes = field(default_factory=Nodes)
    interface: str = LOOPBACK
    """Address of this node for the other half of a pair, and of the engine's own surface."""
    part: Part = Part.whole
    bootstrap_port: int = 0
    """Of a server that prefills: where it is found, at `interface`."""
    root_pid: int | None = None
    """The process whose end ends the server whatever becomes of the cell; None: the parent of this one."""
    log: Path | None = None
    """What the server prints; None: in `folder`."""
