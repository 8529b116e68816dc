"""Where a call goes: a pure choice over the rows of the table, and what this shard remembers about cells that failed it.

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

FIRST_HOLD_S = 0.25
LONGEST_HOLD_S = 8.0


def route(
    rows: Sequence[Row],
    *,
    purpose: str,
    barred: AbstractSet[str],
    loads: Mapping[str, int],
    home: str,
    not_older_than: Version | None,
) -> Row | None:
    """The cell for one call, or None. `home` is the cell that has its context; it is preferred until it is full."""
    fit = [
        row
        for row in rows
        if purpose in row.purposes and row.cell not in barred and (not_older_than is None or row.version >= not_older_than)
    ]
    for row in fit:
        if row.cell == home and loads.get(home, 0) < row.capacity:
            return row
    return min(fit, key=lambda row: (loads.get(row.cell, 0) / max(row.capacity, 1), row.cell), default=None)


@dataclass(slots=True)
class _Bar:
    term: int
    until: float
    hold_s: float


class Routing:
    """Rows in force, load by cell, bars."""

    def __init__(self) -> None:
        self.table = Table(number=-1, lease_s=0.0)
        self.valid_until = 0.0
        self.moved: frozenset[tuple[str, str]] = frozenset()
        """What the newest table says of KV that moved and the one before it did not: each move is news once."""
        self.loads: Counter[str] = Counter()
        self._bars: dict[str, _Bar] = {}

    def take(self, now: float, table: Table) -> bool:
        """Take a table that is not older; True when its rows replaced ours."""
        if table.number < self.table.number:
            return False
        is_newer = table.number > self.table.number
        self.moved = frozenset(table.moved) - frozenset(self.table.moved)
        self.table, self.valid_until = table, now + table.lease_s
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

    def choose(self, now: float, *, purpose: str, home: str, not_older_than: Version | None) -> Row | None:
        """`route` over the rows in force, without cells barred now."""
        rows = self.table.rows
        barred = {row.cell for row in rows if self._is_barred(now, row)}
        return route(rows, purpose=purpose, barred=barred, loads=self.loads, home=home, not_older_than=not_older_than)

    def _is_barred(self, now: float, row: Row) -> bool:
        bar = self._bars.get(row.cell)
        return bar is not None and bar.term == row.term and now < bar.until
