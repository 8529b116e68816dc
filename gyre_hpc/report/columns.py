"""Text tables that a terminal of 120 columns shows without breaking a line."""

import textwrap
from collections.abc import Sequence

WIDTH = 120
_GAP = "  "


def columns(rows: Sequence[Sequence[str]]) -> str:
    """As wide as it has to be; the first column to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [[row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in rows]
    return "\n".join(_GAP.join(cells).rstrip() for cells in lines)


def fits(table: str) -> bool:
    return all(len(line) <= WIDTH for line in table.splitlines())


def wrapped(text: str) -> str:
    """One note, its further lines set in. A word that is longer than a line stays whole, so that it can be copied."""
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
