"""Which conversations of a cell that leaves rollout move their KV where: facts in, a plan out.

A move is worth it when it takes less time than the prefill it spares. Under a budget of time the conversations with the most
recompute spared per second of transfer go first, the longest ones of those; what does not fit is prefilled anew where it goes on.
"""

import msgspec


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation whose KV an engine holds or has cached."""

    call: str
    """Its newest call, as the gateway names it: `<execution>/<ordinal>`."""
    num_tokens: int
    """Whose KV could move (full pages)."""
    is_live: bool
    """A call of it is being computed now; otherwise its agent is using a tool."""

    @property
    def execution(self) -> str:
        return self.call.rpartition("/")[0]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that may take conversations over."""

    cell: str
    free_tokens: int
    live_requests: int = 0


class Speeds(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second, measured where there is a measurement."""

    prefill: float
    move: float


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Give the KV of `call`'s conversation to `cell`."""

    call: str
    cell: str
    num_tokens: int
