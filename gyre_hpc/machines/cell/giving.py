"""A cell's KV on its way out: from the closing of admission to the sleep of the engine (DESIGN §4, step 3).

Listed and given at most once for each closing of admission, under the newest order there is then; nothing here holds a role
change up: what was not given is prefilled anew where it goes on. Only leases do, since others may still read those pages.
"""

from dataclasses import dataclass

from gyre_hpc.machines.cell.actions import Action, ListConversations, MoveKv, MoveResult
from gyre_hpc.machines.cell.settings import CellSettings
from gyre_hpc.protocol.to_batch import KvFacts, Moved
from gyre_hpc.protocol.to_cell import KvOrder, KvTarget
from gyre_hpc.scheduler.migration import Conversation, Move, Plan, Speeds, Target, plan

_REMEMBERED = 0.5
"""Of earlier transfers beside the newest, in tokens and in seconds alike: a few tokens say little about the speed of many."""
_FORGIVEN = 0.9
"""Of the seconds remembered, whenever nothing was worth moving: one slow transfer must not be the last one ever measured."""
_FADING = 0.05
"""Of a slower look in the prefill speed: an engine that had little to prefill is not a slow one."""


@dataclass(kw_only=True, slots=True)
class Giving:
    since: float | None = None
    """When listing began, monotonic seconds; the budget counts from there."""
    listed: tuple[Conversation, ...] | None = None
    planned: Plan | None = None
    is_over: bool = False
    """Nothing more moves before admission has been open again."""
    moved: tuple[Moved, ...] = ()
    is_counted: bool = False
    """Nobody else is at pages of this engine, and nobody will be before admission opens again. Whatever became of a transfer, only
    a count of zero says so."""
    stays: str = ""
    """Why nothing moves, to be told once."""
    num_left: int = 0
    """Conversations that stay then."""
    sent: tuple[float, float] = (0.0, 0.0)
    """(tokens spared, seconds) of transfers from here, fading; zero: none measured yet."""
    prefill_tokens_per_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    """Of the engine's measured curve, at its best: prefill is no slower than that."""
    looked: tuple[float, int] | None = None
    """(time, tokens prefilled so far) at the last look at the engine."""

    def closes(self) -> None:
        """Admission closes: the next departure begins."""
        self.since = self.listed = self.planned = None
        self.is_over, self.is_counted, self.moved, self.stays = False, False, (), ""

    def must_count(self, kv: KvFacts) -> bool:
        """Others may be at pages of this engine: those that read what was leased, those that write what they give."""
        return not self.is_counted and kv.capability in ("pages", "pd")

    def fails(self, reason: str) -> None:
        """Listing or moving failed: everything stays."""
        self.is_over, self.stays, self.num_left = True, reason, len(self.listed or ())

    def looks(self, now: float, prefilled: int, curve: tuple[tuple[float, float], ...]) -> None:
        """A look at the engine's counters. The fastest looks tell its speed."""
        self.decode_tokens_per_s = max((speed for _, speed in curve), default=0.0)
        before, self.looked = self.looked, (now, prefilled)
        if before is None or now <= before[0] or prefilled <= before[1]:
            return
        speed = (prefilled - before[1]) / (now - before[0])
        known = self.prefill_tokens_per_s
        self.prefill_tokens_per_s = speed if speed > known else known + _FADING * (speed - known)

    def gave(self, result: MoveResult) -> None:
        self.is_over, self.moved = True, result.moved
        tokens = self._spared(result)
        if tokens > 0 and result.seconds > 0:
            self.sent = (_REMEMBERED * self.sent[0] + tokens, _REMEMBERED * self.sent[1] + result.seconds)

    def _spared(self, result: MoveResult) -> int:
        """Tokens that need no prefill where they go on: plans count a prefix that a target has already, so their speed must too.
        Only what was sent is certain when there was trouble."""
        if result.trouble or self.planned is None:
            return result.num_tokens
        went = {one.call for one in result.moved}
        return max(result.num_tokens, sum(move.num_tokens for move in self.planned.moves if move.call in went))

    def speeds(self, settings: CellSettings) -> Speeds:
        tokens, seconds = self.sent
        return Speeds(
            prefill=max(self.prefill_tokens_per_s, self.decode_tokens_per_s) or settings.prefill_tokens_per_s,
            move=tokens / seconds if seconds else settings.move_tokens_per_s,
        )


def next_giving(giving: Giving, order: KvOrder | None, kv: KvFacts, settings: CellSettings, now: float) -> Action | None:
    """The next step that gives KV away, or None: there is none (any more)."""
    if giving.is_over or order is None or not order.targets or kv.capability == "none":
        return None
    if giving.listed is None:
        giving.since = now
        return ListConversations(deadline_s=order.budget_s)
    assert giving.since is not None
    left_s = giving.since + order.budget_s - now
    if giving.planned is None:
        _plan(giving, order, kv, settings, left_s)
    assert giving.planned is not None
    if not giving.planned.moves or left_s <= 0:
        giving.is_over = True
        return None
    return MoveKv(moves=giving.planned.moves, deadline_s=left_s)


def _plan(giving: Giving, order: KvOrder, kv: KvFacts, settings: CellSettings, left_s: float) -> None:
    live = frozenset(order.live)
    wanted = [one for one in giving.listed or () if one.execution in live]
    speeds = giving.speeds(settings)
    giving.planned = made = plan(kv.capability, wanted, [_target(one) for one in order.targets], speeds, left_s)
    giving.moved = tuple(Moved(home.call, home.cell) for home in made.homes)
    giving.num_left = len(wanted) - len(made.moves) - len(made.homes)
    if not wanted or made.moves or made.homes:
        return
    if speeds.spared <= 0:
        giving.sent = (giving.sent[0], giving.sent[1] * _FORGIVEN)
        giving.stays = f"prefill is faster ({speeds.prefill:.0f} tokens/s against {speeds.move:.0f})"
    elif left_s <= 0:
        giving.stays = "no time is left of the budget"
    else:
        giving.stays = (
            f"no room ({max(target.free_tokens for target in order.targets)} tokens) or too little time ({left_s:.3g} s) for any of them"
        )


def _target(target: KvTarget) -> Target:
    return Target(cell=target.cell, free_tokens=target.free_tokens, live_requests=target.live_requests)


def given_note(cell: str, moves: tuple[Move, ...], result: MoveResult) -> dict[str, object]:
    """Fields of `kv_moved`."""
    return {
        "cell": cell,
        "targets": sorted({one.cell for one in result.moved}),
        "conversations": len(result.moved),
        "of": len(moves),
        "tokens": result.num_tokens,
        "seconds": result.seconds,
        "trouble": result.trouble,
    }
