"""What the HTTP surface asks of an engine of any kind. Called from the asyncio loop; none of it blocks."""

import enum
from dataclasses import dataclass
from typing import Any, Protocol

from gyre_hpc.engines.calls import CallBook, LiveCall
from gyre_hpc.engines.stopping import Decode


class PauseMode(enum.Enum):
    """SGLang's modes of /pause_generation."""

    in_place = "in_place"
    """Stand still; KV stays where it is."""
    retract = "retract"
    """Give KV back; calls are prefilled anew when they go on."""
    abort = "abort"
    """End all calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loads:
    """What /v1/loads shows."""

    num_running: int
    num_waiting: int
    num_used_tokens: int
    num_total_tokens: int


class Backend(Protocol):
    book: CallBook
    max_context: int
    vocab_size: int | None
    decode: Decode | None
    """None: requests with stop strings are refused."""

    def submit(self, call: LiveCall) -> None:
        """Begin the call; its pieces come through `book.deliver`."""

    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        """End the call soon: a last piece with finish_reason abort and its tokens so far. moved_to: cell that has its KV."""

    async def pause(self, mode: PauseMode) -> None:
        """Stop computing until `resume`. Returns once nothing moves."""

    async def resume(self) -> None: ...

    async def flush_cache(self) -> bool:
        """Forget all prefixes; False, and nothing done, while calls are live."""

    async def relabel(self, version: str) -> None:
        """Serve `version`. Raises BadRequest when it cannot."""

    def version_text(self) -> str:
        """Version served now, empty before the first."""

    def loads(self) -> Loads: ...

    def facts(self) -> dict[str, Any]:
        """What /server_info shows beside the loads."""

    def failure(self) -> str | None:
        """Why the engine is broken; None: it is not."""
