"""Several runs side by side: a row for each number of summary.json, a column for each run; what is text rather than a number below it."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gyre_hpc.report.columns import columns, fits, wrapped
from gyre_hpc.report.html import flat
from gyre_hpc.report.summary import Summary

_TEXTS = ("versions_changed", "told_anew")
_WIDEST = 24
"""Characters of a cell."""


def compare(named: Sequence[tuple[str, Summary]]) -> str:
    """Text; rows that are equal everywhere come last, so that differences stand at the top. More runs than fit side by side follow below."""
    told = [dict(flat({key: value for key, value in msgspec.to_builtins(summary).items() if key not in _TEXTS})) for _, summary in named]
    keys = list(dict.fromkeys(key for column in told for key in column))
    different = [key for key in keys if len({column.get(key, "-") for column in told}) > 1]
    rows = [["", *(_cut(name) for name, _ in named)]]
    rows += [
        [key, *(_cut(column.get(key, "-")) for column in told)] for key in [*different, *(key for key in keys if key not in different)]
    ]
    return "\n\n".join([*_blocks(rows), *filter(None, ["\n".join(changes_apart(named))])])


def changes_apart(named: Sequence[tuple[str, Summary]]) -> list[str]:
    """Versions that differ between the runs, and what changed within one of them and not in every other."""
    lines = [_apart(key, by_run) for key, by_run in _versions(named)]
    for field in _TEXTS:
        texts = [list(getattr(summary, field)) for _, summary in named]
        if len(texts) == 1 or any(text != texts[0] for text in texts):
            lines += [wrapped(f"{field} of {name}: {'; '.join(text)}") for (name, _), text in zip(named, texts, strict=True) if text]
    return lines


def _versions(named: Sequence[tuple[str, Summary]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    columns: list[Mapping[str, str]] = [summary.versions for _, summary in named]
    for key in dict.fromkeys(key for column in columns for key in column):
        values = [column.get(key, "") for column in columns]
        if len(set(values)) > 1:
            yield f"versions.{key}", [(name, value) for (name, _), value in zip(named, values, strict=True)]


def _apart(key: str, by_run: list[tuple[str, str]]) -> str:
    values = ", ".join(f"{value or '-'} ({name})" for name, value in by_run)
    return wrapped(f"{key}: {values}")


def _blocks(rows: list[list[str]]) -> Iterator[str]:
    """As many runs beside each other as fit, at least one."""
    begin = 1
    while begin < len(rows[0]):
        ends = range(len(rows[0]), begin, -1)
        tables = (columns([[row[0], *row[begin:end]] for row in rows]) for end in ends)
        end, table = next(((end, table) for end, table in zip(ends, tables, strict=True) if fits(table) or end == begin + 1))
        yield table
        begin = end


def _cut(text: str) -> str:
    """Names of runs are told apart by their ends, commits by their beginnings."""
    return text if len(text) <= _WIDEST else f"{text[:8]}…{text[9 - _WIDEST :]}"
