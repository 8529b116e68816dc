"""Several runs side by side: a row for each number of summary.json, a column for each run."""

from collections.abc import Sequence

import msgspec

from gyre_hpc.report.html import flat
from gyre_hpc.report.summary import Summary


def compare(named: Sequence[tuple[str, Summary]]) -> str:
    """A text table; rows that are equal everywhere come last, so that differences stand at the top."""
    columns = [dict(flat(msgspec.to_builtins(summary))) for _, summary in named]
    names = list(dict.fromkeys(name for column in columns for name in column))
    different = [name for name in names if len({column.get(name, "-") for column in columns}) > 1]
    rows = [["", *[name for name, _ in named]]]
    for name in [*different, *[name for name in names if name not in different]]:
        rows.append([name, *[column.get(name, "-") for column in columns]])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        first = row[0].ljust(widths[0])
        lines.append("  ".join([first, *[cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]]).rstrip())
    return "\n".join(lines)
