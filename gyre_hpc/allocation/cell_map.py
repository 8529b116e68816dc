"""A partition for people (a table) and for programs (plain values for JSON)."""

from collections import Counter
from itertools import groupby
from typing import Any

from gyre_hpc.allocation.base import Cell, Partition, Rank
from gyre_hpc.allocation.hostlist import compress

_TITLES = ("CELL", "KIND", "NODES", "RANKS", "DEVICES", "SWITCH")
_LEFT = ("LEFT OVER", "KIND", "DEVICES", "WHY")


def table(partition: Partition) -> str:
    """Cells, leftovers and one line that sums up."""
    lines = _columns([_TITLES, *(_row(cell) for cell in partition.cells)]) if partition.cells else []
    if partition.leftovers:
        rows = [(left.node, left.kind, _ranges(left.devices), left.text) for left in partition.leftovers]
        lines += ["", *_columns([_LEFT, *rows])]
    if partition.without_devices:
        lines += ["", f"without devices, for harnesses only: {compress(partition.without_devices)}"]
    return "\n".join([*lines, "", _sum(partition)]).lstrip("\n")


def as_json(partition: Partition) -> dict[str, Any]:
    """{"ranks_per_cell", "cells": [...], "leftovers": [...], "without_devices": [...]}."""
    return {
        "ranks_per_cell": partition.ranks_per_cell,
        "cells": [
            {
                "name": cell.name,
                "kind": cell.kind,
                "switch": cell.switch,
                "height": cell.height,
                "nodes": list(cell.nodes),
                "ranks": [[rank.node, rank.device] for rank in cell.ranks],
            }
            for cell in partition.cells
        ],
        "leftovers": [
            {"node": left.node, "kind": left.kind, "devices": list(left.devices), "reason": left.reason.value, "text": left.text}
            for left in partition.leftovers
        ],
        "without_devices": list(partition.without_devices),
    }


def _row(cell: Cell) -> tuple[str, ...]:
    by_node = [(node, tuple(rank.device for rank in ranks)) for node, ranks in groupby(cell.ranks, key=_node)]
    ranks = str(len(cell.ranks)) if len(by_node) == 1 else f"{len(cell.ranks)} = {len(by_node)} x {cell.ranks_per_node}"
    devices = {_ranges(devices) for _, devices in by_node}
    return cell.name, cell.kind, compress(cell.nodes), ranks, " ".join(sorted(devices)), cell.switch or ("-" if cell.height else "one node")


def _node(rank: Rank) -> str:
    return rank.node


def _ranges(numbers: tuple[int, ...]) -> str:
    """Consecutive numbers: 0-3."""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _sum(partition: Partition) -> str:
    left = Counter[str]()
    for each in partition.leftovers:
        left[each.kind] += len(each.devices)
    kinds = dict.fromkeys([*partition.kinds, *sorted(left)])
    size = f"{partition.ranks_per_cell} rank{'s' if partition.ranks_per_cell > 1 else ''}"
    parts = [f"{kind}: {_cells(len(partition.of_kind(kind)))} of {size}, {left[kind]} devices left over" for kind in kinds]
    return "; ".join(parts) or "no devices, so no cells"


def _cells(number: int) -> str:
    return f"{number} cell{'s' if number != 1 else ''}"


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
