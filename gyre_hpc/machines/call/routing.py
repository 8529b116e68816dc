"""Where a call goes: the choice of scheduler/routing.py over the rows that may take it, and what this shard remembers of cells:
calls there, tokens on their way, how long calls took, and who failed it.

A cell that failed, refused or aborted is barred at once, for its term. Two things lift the bar: a row with another term, and
a hold time that doubles with each failure in a row (a table may name a cell a moment before its gate opens, and a lost
connection need not be a lost cell). The table's lease only tells the batch machine whose acknowledgement it needs; past it
the last rows are still used, because the cells' own gates are what keeps late calls out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_gateway import Row, Table
from gyre_hpc.scheduler.routing import Pace, choose

FIRST_HOLD_S = 0.25
LONGEST_HOLD_S = 8.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a call asks of a cell."""

    purpose: str
    not_older_than: Version | None = None
    num_tokens: int = 0
    """Of its context, tokens so far included."""
    home: str = ""
    """Cell that has the first `held` of them; empty: none is known."""
    held: int = 0


def route(
    rows: Sequence[Row],
    *,
    wanted: Wanted,
    barred: AbstractSet[str],
    loads: Mapping[str, int],
    prefilling: Mapping[str, int],
    pace: Pace,
) -> Row | None:
    """The cell for one call, or None: of its purpose, not barred, with weights as new as it needs."""
    fit = [
        row
        for row in rows
        if wanted.purpose in row.purposes
        and row.cell not in barred
        and (wanted.not_older_than is None or row.version >= wanted.not_older_than)
    ]
    return choose(fit, loads=loads, prefilling=prefilling, num_tokens=wanted.num_tokens, home=wanted.home, held=wanted.held, pace=pace)


@dataclass(slots=True)
class _Bar:
    term: int
    until: float
    hold_s: float


@dataclass(slots=True)
class _Sent:
    """A call on a cell."""

    cell: str
    at: float
    position: int
    """Output tokens it came with."""
    ahead: int
    """Tokens to be computed there before its own."""
    missing: int
    """Of its own, while none of its tokens has come."""
    is_free: bool
    """There was a place for it."""
    first_at: float | None = None


class Routing:
    """Rows in force, calls and tokens on their way by cell, bars."""

    def __init__(self) -> None:
        self.table = Table(number=-1, lease_s=0.0)
        self.valid_until = 0.0
        self.moved: frozenset[tuple[str, str]] = frozenset()
        """What the newest table says of KV that moved and the one before it did not: each move is news once."""
        self.rows: dict[str, Row] = {}
        """By cell."""
        self.loads: Counter[str] = Counter()
        self.prefilling: Counter[str] = Counter()
        self.pace = Pace()
        self._sent: dict[str, _Sent] = {}
        self._bars: dict[str, _Bar] = {}

    def take(self, now: float, table: Table) -> bool:
        """Take a table that is not older; True when its rows replaced ours."""
        if table.number < self.table.number:
            return False
        is_newer = table.number > self.table.number
        self.moved = frozenset(table.moved) - frozenset(self.table.moved)
        self.table, self.valid_until = table, now + table.lease_s
        self.rows = {row.cell: row for row in table.rows}
        return is_newer

    def bar(self, now: float, cell: str, term: int) -> float:
        """Keep calls off this cell; returns for how many seconds, if its row stays as it is."""
        known = self._bars.get(cell)
        hold_s = FIRST_HOLD_S
        if known is not None and known.term == term:
            hold_s = known.hold_s if now < known.until else min(known.hold_s * 2, LONGEST_HOLD_S)
        self._bars[cell] = _Bar(term, now + hold_s, hold_s)
        return hold_s

    def served(self, cell: str) -> None:
        """The cell gave tokens: forget its failures."""
        self._bars.pop(cell, None)

    def has(self, cell: str, term: int) -> bool:
        return any(row.cell == cell and row.term == term for row in self.table.rows)

    def choose(self, now: float, wanted: Wanted) -> Row | None:
        """`route` over the rows in force, without cells barred now."""
        rows = self.table.rows
        barred = {row.cell for row in rows if self._is_barred(now, row)} if self._bars else frozenset[str]()
        return route(rows, wanted=wanted, barred=barred, loads=self.loads, prefilling=self.prefilling, pace=self.pace)

    def sent(self, now: float, call: str, row: Row, wanted: Wanted, position: int) -> None:
        """The call goes to the cell of `row`, with `position` output tokens so far."""
        cell = row.cell
        missing = wanted.num_tokens - (wanted.held if cell == wanted.home else 0)
        is_free = self.loads[cell] < row.capacity
        self._sent[call] = _Sent(cell, now, position, self.prefilling[cell], missing, is_free)
        self.loads[cell] += 1
        self.prefilling[cell] += missing

    def began(self, now: float, call: str, num_computed: int) -> None:
        """Its first token came; `num_computed` tokens of its context had to be computed."""
        sent = self._sent[call]
        self.prefilling[sent.cell] -= sent.missing
        sent.missing, sent.first_at = 0, now
        if sent.is_free:
            self.pace.first_token(now - sent.at, sent.ahead + num_computed)

    def ended(self, now: float, call: str, num_output: int) -> None:
        """The engine gave all of it, `num_output` tokens in the end; `over` follows."""
        sent = self._sent[call]
        if sent.first_at is not None:
            self.pace.ended(now - sent.at, now - sent.first_at, num_output - sent.position, self.loads[sent.cell])

    def over(self, call: str) -> None:
        """It is on no cell any more."""
        sent = self._sent.pop(call)
        self.loads[sent.cell] -= 1
        self.prefilling[sent.cell] -= sent.missing

    def _is_barred(self, now: float, row: Row) -> bool:
        bar = self._bars.get(row.cell)
        return bar is not None and bar.term == row.term and now < bar.until
