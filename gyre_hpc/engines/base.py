"""What a cell needs of an inference engine, whichever kind.

The gateway never sees this class: it speaks SGLang's native HTTP API to `url` (POST /generate, /abort_request, ...).
The cell leader drives role switches and weights through these methods. All methods may be called from the leader's
asyncio loop; `sleep` and `wake` act on every rank of the cell and return one figure per rank.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCapabilities:
    """What the rest may count on."""

    kv: str
    """none, pages, pd or shared (DESIGN §4)."""
    sampling: str
    """`counter`: a moved or replayed call draws the same tokens; `own`: it does not."""


class Engine(ABC):
    """One cell's engine. Admission starts closed.

    Lifecycle: start -> (asleep) -> wake(version) -> open_admission(term) -> ... -> close_admission -> abort_all ->
    sleep -> wake ... -> close.
    """

    capabilities: EngineCapabilities

    @abstractmethod
    async def start(self) -> str:
        """Start serving HTTP and return the base URL. The engine is asleep, admission closed."""

    @abstractmethod
    async def close(self) -> None:
        """Stop; live requests end with finish_reason abort and their tokens so far."""

    @abstractmethod
    def open_admission(self, term: int) -> None:
        """Take requests from now on."""

    @abstractmethod
    def close_admission(self, term: int) -> None:
        """Answer every later /generate with 409 {"error", "term"}; never park one."""

    @abstractmethod
    def num_live(self) -> int:
        """Requests taken and not answered to the end."""

    @abstractmethod
    async def abort_all(self) -> int:
        """End every live request with finish_reason abort, its tokens kept, answer sent; return how many."""

    @abstractmethod
    async def sleep(self) -> list[RankMemory]:
        """Release device memory. Raises AssertionError while requests are live (verify zero first)."""

    @abstractmethod
    async def wake(self, version: Version) -> list[RankMemory]:
        """Take memory again and serve `version` from the cell's own snapshot store."""

    @abstractmethod
    async def update_weights(self, version: Version) -> None:
        """Between two decode steps, go over to `version` from the cell's own snapshot store. Live requests go on
        (recompute: their KV is rebuilt; keep: it stays under a mixed key). Raises KeyError if the store lacks it."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """sampled, prefilled, cached, decode_steps since start."""

    @abstractmethod
    def curve(self) -> dict[int, float]:
        """Measured decode throughput (tokens/s of the whole engine) by number of running requests."""
