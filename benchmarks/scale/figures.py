"""What the parts of benchmarks.scale hand back, and how it is shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    """Key in the JSON line; unique over all parts."""
    value: float | None
    """None: it could not be measured; `note` says why."""
    unit: str
    note: str = ""
    """What the number alone does not say, for people."""


def table(part: str, figures: Sequence[Figure]) -> str:
    """Lines for people."""
    lines = [f"{part:<44}{'value':>12}  unit"]
    for figure in figures:
        value = "-" if figure.value is None else f"{figure.value:.4g}"
        lines.append(f"{figure.name:<44}{value:>12}  {figure.unit:<10}{figure.note}".rstrip())
    return "\n".join(lines)


def last_line(figures: Sequence[Figure], facts: Mapping[str, Any]) -> str:
    """One JSON object; `facts` come first. Raises ValueError when two figures share a name."""
    values: dict[str, Any] = dict(facts)
    for figure in figures:
        if figure.name in values:
            raise ValueError(f"{figure.name} was measured twice")
        values[figure.name] = None if figure.value is None else float(f"{figure.value:.4g}")
    return json.dumps(values)
