"""What the files of this room are to one another. No torch, no HTTP library.

leader process                                           processes of SGLang's environment
HttpSurface ─ SGLangEngine ─ Attempts ─ Client ───HTTP──▶ SGLang server (rank 0 of the cell's nodes)
                   │  └───── WeightRoute ───group/disk──▶ its ranks
                   └─ Server ──unix socket──▶ keeper ────▶ starts, watches and ends it (one keeper per node)
"""

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gyre_hpc.errors import GyreError
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory

LONGEST_FOLDER = 60
"""[bytes] Of a server's folder. A Unix socket's path has at most 107; SGLang makes some of its own below ours."""


class ServerLost(GyreError):
    """SGLang ended, does not answer, or answered what it must not."""


class Refused(GyreError):
    """SGLang answered a request with an error of the request's own (400)."""


class NotAnswered(GyreError):
    """SGLang gave up one request (a lost prefill peer, no memory for it); the next one may do well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """The cell's nodes, as the server on one of them sees them."""

    number: int = 0
    """Of this node; the leader is on node 0."""
    count: int = 1
    address: str = ""
    """host:port where the server's ranks meet (--dist-init-addr); empty with one node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Everything a server is started with; two servers of equal launches are interchangeable."""

    python: Path
    """Interpreter of SGLang's environment."""
    program: tuple[str, ...]
    """("-m", "sglang.launch_server"), or (file,)."""
    flags: tuple[str, ...]
    """Without those that are new for every start (--port, --api-key)."""
    environ: Mapping[str, str]
    """Whole environment: nothing is inherited beside it. torchrun's variables are not in it."""
    folder: Path
    """Of the server on this node, node-local: log, socket of its keeper, temporary files. At most LONGEST_FOLDER long."""
    host: str = "127.0.0.1"
    """Where it listens; among the flags too."""
    bootstrap_port: int = 0
    """Of a server that prefills for another one; among the flags too."""

    def digest(self) -> str:
        """Equal exactly for equal launches (hex)."""
        values = [str(self.python), self.program, self.flags, sorted(self.environ.items()), str(self.folder)]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    url: str
    """http://HOST:PORT, on loopback but for a server that prefills for others."""
    key: str
    """Bearer token of its --api-key: other users of the machine reach loopback too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """News of one upstream request."""

    start: int
    """Place of ids[0] among the request's output tokens."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cached: int
    """Prompt tokens that the prefix cache had."""
    version: str
    """Label when the chunk was sent. Right for all its tokens, since weights change at zero requests only."""
    num_retractions: int = 0
    """How often SGLang itself took this request's KV away so far, for want of memory."""
    finish: dict[str, Any] | None = None
    """SGLang's finish_reason; set in the last chunk."""


class Upstream(Protocol):
    """A server's HTTP API (client.py). Every method raises ServerLost; deadlines are its own."""

    def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[Chunk, None]:
        """POST /generate, streamed in news only. The first chunk is empty: from then on the server knows the rid, and `abort` ends
        it. The last one has `finish`. Closing the iterator closes the connection: the request ends, tokens not sent yet are lost.
        Raises Refused, NotAnswered."""

    async def abort(self, rid: str) -> None:
        """Ends every request whose rid begins with `rid`. One that the server does not know yet is not ended."""

    async def abort_all(self) -> None:
        """Ends every request that its scheduler has."""

    async def flush(self, deadline_s: float) -> bool:
        """Wait until the server is idle in every queue, and forget all prefixes; False: it was not idle in time."""

    async def release_memory(self) -> None:
        """KV and weights. A server that is not idle would end."""

    async def resume_memory(self) -> None:
        """After release_memory, never without: the server would end."""

    async def ask(self, path: str, body: Mapping[str, Any], deadline_s: float) -> Any:
        """POST anything else; the JSON answer. Raises Refused."""

    async def info(self) -> dict[str, Any]:
        """/server_info."""

    async def is_well(self, deadline_s: float) -> bool:
        """/health_generate: its scheduler answers too. Not while it sleeps."""

    async def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrap:
    """Where the bootstrap server of a server that prefills is found, by the one that decodes."""

    host: str
    port: int


class Prefill(Protocol):
    """The server that computes prompts for this one (engine.sglang.kv=pd)."""

    async def where(self) -> Bootstrap:
        """As it is now. Raises NotAnswered."""

    async def prompt(self, body: Mapping[str, Any], version: str) -> str:
        """Compute the prompt of the request `body`, which names the bootstrap room in which the other server waits for its KV, with
        weights of this label and no other. Returns once the KV is there: the label that the server put on it. Broken off, nothing of
        the request lives on. Raises NotAnswered (it has other weights, too), Refused."""


class WeightSender(Protocol):
    """Brings weights into a server that has no live request (weights.py)."""

    async def join(self, upstream: Upstream) -> None:
        """Once per server, before the first `send`. Raises ServerLost."""

    async def send(self, upstream: Upstream, version: Version, tensors: Mapping[str, Any], *, flush: bool) -> None:
        """All of `tensors` (by Hugging Face name, any dtype: cast to the server's) and the label str(version). Raises ServerLost
        when it cannot be said which weights the server has now."""

    async def close(self) -> None: ...


class Holder(Protocol):
    """The server of this node (server.py)."""

    was_adopted: bool
    """It was running already: its state is `noted`."""
    noted: str
    """What `note` wrote last, also in an earlier life of this cell's leader; empty: nothing."""

    async def start(self) -> Address:
        """Adopt the server of an equal launch whose noted state is not `changing`, else end what is there and start anew. Returns
        once it answers /health. Raises ServerLost with the end of its log: it ended, or the deadline is over."""

    def note(self, state: str) -> None:
        """asleep | awake | changing, for whoever adopts it; written by rename."""

    def failure(self) -> str | None:
        """Why the server is gone; None: it runs."""

    def pids(self) -> tuple[int, ...]:
        """Of the server's processes, the keeper's first."""

    async def stop(self) -> None:
        """End server and keeper, with everything they started."""


class Measured(Protocol):
    async def measure(self) -> list[RankMemory]:
        """Device memory of this node's ranks."""
