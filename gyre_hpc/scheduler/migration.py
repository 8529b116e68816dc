"""Which conversations of a cell that leaves rollout move their KV where: facts in, a plan out.

A move is worth it when it takes less time than the prefill it spares. Under a budget of time the conversations with the most
recompute spared per second of transfer go first, the longest ones of those; what does not fit is prefilled anew where it goes on.

Invariants (each has a test):
  - every conversation is planned at most once; no target gets more tokens than it has room for; all transfers together take no
    longer than the budget, at the speed they are planned with;
  - the plan spares at least a third of the most that any plan could (`WORST_SHARE`);
  - the same facts give the same plan, in whatever order they come.

Why a third. Let the plan move G tokens, longest conversations first. If one that fits into the whole budget was left out for want of
time, what went before it is at least as long, so G is more than half of the budget, and no plan moves more than the budget. Else
those left out found no room: a target they would fit into when empty holds longer ones, so it is more than half full. What the best
plan moves of those left out is then less than 2 G, what it moves of the others at most G.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gyre_hpc.protocol.to_batch import KvFacts

WORST_SHARE = 1 / 3
_ROUNDING = 1e-9


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

    @property
    def spared(self) -> float:
        """Seconds of prefill spared per second of transfer, less that second. At most 0: moving is not worth it."""
        return self.move / self.prefill - 1.0 if self.prefill > 0 else float("inf") if self.move > 0 else 0.0


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Give the KV of `call`'s conversation to `cell`."""

    call: str
    cell: str
    num_tokens: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a leaving cell's conversations; those in neither list are prefilled anew."""

    moves: tuple[Move, ...] = ()
    """To be transferred, in this order."""
    homes: tuple[Move, ...] = ()
    """Nothing to transfer: these cells can read the KV where it is."""


def may_take(source: str, gives: KvFacts, takes: KvFacts) -> bool:
    """Whether a cell with `takes` can go on with KV of the cell `source`, which has `gives` (DESIGN §4)."""
    match gives.capability:
        case "pages" | "shared":
            return takes.capability == gives.capability
        case "pd":
            return takes.decodes_for == source
        case _:
            return False


def plan(capability: str, conversations: Iterable[Conversation], targets: Iterable[Target], speeds: Speeds, budget_s: float) -> Plan:
    """What the source's capability allows. `targets` are cells that may take (`may_take`)."""
    match capability:
        case "pages" | "pd":
            return Plan(moves=plan_moves(conversations, targets, speeds, budget_s))
        case "shared":
            return Plan(homes=_homes(conversations, targets))
        case _:
            return Plan()


def plan_moves(conversations: Iterable[Conversation], targets: Iterable[Target], speeds: Speeds, budget_s: float) -> tuple[Move, ...]:
    """Transfers worth their time, the most worth first, within the targets' room and the budget."""
    if speeds.spared <= 0:
        return ()
    rooms = [_Room(target) for target in targets]
    left_s = budget_s
    moves = []
    for conversation in in_order(conversations):
        seconds = conversation.num_tokens / speeds.move
        fit = [room for room in rooms if room.free_tokens >= conversation.num_tokens]
        if conversation.num_tokens <= 0 or seconds > left_s + _ROUNDING or not fit:
            continue
        left_s -= seconds
        moves.append(min(fit, key=_Room.load).take(conversation))
    return tuple(moves)


def in_order(conversations: Iterable[Conversation]) -> Sequence[Conversation]:
    """One per call, in the order in which they should go. Prefill and transfer are linear in tokens, so that a second of transfer
    spares the same for each of them: the longest prefix first, then those that wait for nothing but the cell."""
    unique = {one.call: one for one in sorted(conversations, key=lambda one: (one.num_tokens, one.is_live))}
    return sorted(unique.values(), key=lambda one: (-one.num_tokens, not one.is_live, one.call))


def _homes(conversations: Iterable[Conversation], targets: Iterable[Target]) -> tuple[Move, ...]:
    """Every target can read everything: only the load is spread."""
    rooms = [_Room(target) for target in targets]
    return tuple(min(rooms, key=_Room.load).take(conversation) for conversation in in_order(conversations)) if rooms else ()


class _Room:
    """A target while a plan is made."""

    def __init__(self, target: Target) -> None:
        self.cell, self.free_tokens, self._calls = target.cell, target.free_tokens, target.live_requests

    def load(self) -> tuple[int, int, str]:
        """The smallest takes the next one."""
        return self._calls, -self.free_tokens, self.cell

    def take(self, conversation: Conversation) -> Move:
        self._calls += 1
        self.free_tokens -= conversation.num_tokens
        return Move(call=conversation.call, cell=self.cell, num_tokens=conversation.num_tokens)
