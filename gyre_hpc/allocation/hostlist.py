"""SLURM's short form of many names: `rack[1-2]n[01-03,7],login` and back.

A range keeps the width of its first number: `n[08-10]` is n08, n09, n10. The right-most bracket runs fastest.
"""

import re
from collections.abc import Iterable

from gyre_hpc.errors import UserError

MOST_NAMES = 65_536
"""Longest list that is written out; a typing error such as n[1-1000000000] is refused instead."""
_LONGEST_NUMBER = 18
"""Digits."""
_PIECE = re.compile(r"(\d+)(?:-(\d+))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)")


def expand(text: str, field: str) -> tuple[str, ...]:
    """Names in the order written; duplicates stay. `field` says in errors where the text stands. Raises UserError."""
    names: list[str] = []
    for part in _split(text, field):
        found = [""]
        for index, piece in enumerate(re.split(r"\[([^\]]*)\]", part)):
            ends = _numbers(piece, text, field) if index % 2 else [piece]
            if len(names) + len(found) * len(ends) > MOST_NAMES:
                raise UserError(field, _short(text), f"names more than {MOST_NAMES} hosts; check its ranges")
            found = [start + end for start in found for end in ends]
        names += found
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """A short form that expands to the same names in the same order."""
    parts: list[str] = []
    run: list[tuple[str, int, str, int]] = []
    for name in names:
        item = _numbered(name)
        if run and item is not None and _goes_on(run[-1], item):
            run.append(item)
            continue
        parts += _written(run)
        run = [item] if item is not None else []
        if item is None:
            parts.append(name)
    return ",".join(_merged([*parts, *_written(run)]))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: n2 before n10."""
    pieces = re.split(r"(\d+)", name)
    return (*((1, int(piece), piece) if index % 2 else (0, 0, piece) for index, piece in enumerate(pieces)), (0, 0, name))


def _split(text: str, field: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            break
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    parts = [part.strip() for part in parts]
    if depth or not all(parts) or any(re.search(r"\s", part) for part in parts):
        raise UserError(field, _short(text), "is no list of hosts; write it as node[01-04,7],login1")
    return parts


def _numbers(piece: str, text: str, field: str) -> list[str]:
    """`01-03,7` -> 01, 02, 03, 7."""
    numbers: list[str] = []
    for part in piece.split(","):
        match = _PIECE.fullmatch(part.strip())
        if match is None or len(part) > 2 * _LONGEST_NUMBER:
            raise UserError(field, _short(text), f"[{piece}] holds no numbers; write ranges as [01-04,7]")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST_NAMES:
            raise UserError(field, _short(text), f"the range {part} runs backwards or is too long; at most {MOST_NAMES} names")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
        if len(numbers) > MOST_NAMES:
            raise UserError(field, _short(text), f"names more than {MOST_NAMES} hosts; check its ranges")
    return numbers


def _numbered(name: str) -> tuple[str, int, str, int] | None:
    """(before, number, after, width) of its last number; None without one."""
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return None
    return match[1], int(match[2]), match[3], len(match[2]) if match[2].startswith("0") else 0


def _goes_on(before: tuple[str, int, str, int], item: tuple[str, int, str, int]) -> bool:
    prefix, number, suffix, width = before
    next_width = len(str(number + 1))
    same_width = item[3] == width or (item[3] == 0 and width == next_width)
    return (item[0], item[1], item[2]) == (prefix, number + 1, suffix) and same_width


def _written(run: list[tuple[str, int, str, int]]) -> list[str]:
    if not run:
        return []
    (prefix, first, suffix, width), last = run[0], run[-1][1]
    start = f"{first:0{width}d}" if width else str(first)
    return [f"{prefix}{start}{suffix}" if len(run) == 1 else f"{prefix}[{start}-{last:0{len(start)}d}]{suffix}"]


def _merged(parts: list[str]) -> list[str]:
    """`n[1-2],n[5-6]` -> `n[1-2,5-6]`."""
    merged: list[str] = []
    for part in parts:
        before = re.fullmatch(r"(.*)\[([\d,-]+)\](\D*)", merged[-1]) if merged else None
        now = re.fullmatch(r"(.*)\[([\d,-]+)\](\D*)", part)
        if before and now and (before[1], before[3]) == (now[1], now[3]):
            merged[-1] = f"{before[1]}[{before[2]},{now[2]}]{before[3]}"
        else:
            merged.append(part)
    return merged


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
