"""Names of processes for people."""

import re
from collections.abc import Iterable


def in_short(names: Iterable[str]) -> str:
    """All of them in the order of their kinds: `controller, gateway-0..3, cell-0..2, cell-5`."""
    numbers: dict[str, set[int] | None] = {}
    for name in names:
        if found := re.fullmatch(r"(.+-)(0|[1-9]\d*)", name):
            of_kind = numbers.setdefault(found[1], set())
            assert of_kind is not None
            of_kind.add(int(found[2]))
        else:
            numbers[name] = None
    return ", ".join(part for kind, found in numbers.items() for part in ([kind] if found is None else _runs(kind, sorted(found))))


def _runs(kind: str, numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{kind}{run[0]}" if len(run) == 1 else f"{kind}{run[0]}..{run[-1]}" for run in runs]
