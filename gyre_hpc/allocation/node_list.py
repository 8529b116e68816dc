"""Nodes of an allocation from text.

SLURM: what `scontrol show node` prints (or NodeName lines of slurm.conf); devices come from Gres, and a node without a GPU
there has none. YAML:

    nodes:
      - {names: "gpu[01-04]", kind: h100, devices: 8}
      - {names: "cpu[1-2]"}                              # no devices: harnesses only
"""

import re
from collections.abc import Iterator
from typing import Any

from gyre_hpc.allocation.base import NO_DEVICE, Node
from gyre_hpc.allocation.hostlist import expand
from gyre_hpc.allocation.slurm_text import has_records, records
from gyre_hpc.allocation.yaml_text import entries, text_of
from gyre_hpc.errors import UserError

MOST_DEVICES = 1024
"""Of one node."""
_KEYS = ("NodeName",)
_GPU = re.compile(r"gpu(?::([^:()]+?))?:(\d{1,6})(?:\(.*\))?", re.IGNORECASE)
_COUNTED = re.compile(r"gpu(?::([^:()\d][^:()]*))?(?:\(.*\))?", re.IGNORECASE)


def read_nodes(text: str, field: str = "--nodes") -> tuple[Node, ...]:
    """Raises UserError for what is neither, a node named twice, or no node at all."""
    found = tuple(_from_slurm(text, field) if has_records(text, _KEYS) else _from_yaml(text, field))
    seen: set[tuple[str, str]] = set()
    for node in found:
        if (node.name, node.kind) in seen:
            raise UserError(field, node.name, "stands there twice; name each node once for each kind of device")
        seen.add((node.name, node.kind))
    if not found:
        raise UserError(field, text[:40], "names no node; give what `scontrol show node` prints, or YAML with `nodes:`")
    return found


def _from_slurm(text: str, field: str) -> Iterator[Node]:
    for record in records(text, _KEYS):
        if record["nodename"].upper() == "DEFAULT":
            raise UserError(f"{field} NodeName", "DEFAULT", "defaults are not read here; give what `scontrol show node` prints")
        counts = gpus_of(record.get("gres", ""), f"{field} Gres")
        for name in expand(record["nodename"], f"{field} NodeName"):
            yield from (Node(name=name, kind=kind, num_devices=num) for kind, num in counts.items())
            if not counts:
                yield Node(name=name, kind=NO_DEVICE, num_devices=0)


def gpus_of(gres: str, field: str) -> dict[str, int]:
    """`gpu:h100:8(S:0-1),craynetwork:4` -> {"h100": 8}. A kind that stands there twice counts twice. Raises UserError."""
    counts: dict[str, int] = {}
    if gres in ("", "(null)", "N/A"):
        return counts
    for part in re.split(r",(?![^(\[]*[)\]])", gres):
        if part.partition(":")[0].partition("(")[0].lower() != "gpu":
            continue
        match, alone = _GPU.fullmatch(part), _COUNTED.fullmatch(part)
        if match is None and alone is None:
            raise UserError(field, part, "is no count of GPUs; SLURM writes gpu:KIND:COUNT")
        kind, num = (match[1] or "gpu", int(match[2])) if match is not None else ((alone and alone[1]) or "gpu", 1)
        counts[kind.lower()] = counts.get(kind.lower(), 0) + num
    for num in counts.values():
        _check(num, field)
    return {kind: num for kind, num in counts.items() if num}


def _from_yaml(text: str, field: str) -> Iterator[Node]:
    for number, entry in enumerate(entries(text, "nodes", frozenset({"names", "kind", "devices"}), field)):
        place = f"{field} nodes[{number}]"
        num = _check(entry.get("devices", 0), f"{place}.devices")
        kind = text_of(entry, "kind", place).lower()
        if bool(kind) != bool(num):
            raise UserError(f"{place}.kind", kind, f"with devices={num}: name the kind of the devices, or leave both out")
        for name in expand(text_of(entry, "names", place), f"{place}.names"):
            yield Node(name=name, kind=kind, num_devices=num)


def _check(num: Any, field: str) -> int:
    if isinstance(num, bool) or not isinstance(num, int) or not 0 <= num <= MOST_DEVICES:
        raise UserError(field, num, f"give a whole number from 0 to {MOST_DEVICES}")
    return num
