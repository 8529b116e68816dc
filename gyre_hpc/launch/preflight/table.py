"""A verdict for people: a line per node, then what is wrong."""

from collections.abc import Sequence

from gyre_hpc.launch.preflight.facts import NodeProbe, Place
from gyre_hpc.launch.preflight.judge import Trouble, Verdict, Weight, kinds, size

_HEAD = (
    "node",
    "address",
    "run folder",
    "scratch",
    "cache",
    "way",
    "clock",
    "GPUs",
    "driver",
    "RDMA",
    "python",
    "torch",
    "sglang",
    "bwrap",
    "left over",
)
_NONE = "-"


def table(verdict: Verdict, hosts: Sequence[str]) -> str:
    """hosts: of the whole allocation, by place. Folders: what is free. way, clock: to that node from the first one."""
    rows = [_HEAD, *[_row(node, host, verdict) for node, host in enumerate(hosts)]]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [*lines, *map(_line, sorted(verdict.troubles, key=lambda trouble: trouble.weight is not Weight.refuse)), _end(verdict)]
    )


def _row(node: int, host: str, verdict: Verdict) -> tuple[str, ...]:
    probe = verdict.probes.get(node)
    if probe is None:
        return (host or f"node {node}", "no answer", *[_NONE] * (len(_HEAD) - 2))
    versions = [probe.versions.get(name) or _NONE for name in ("python", "torch", "sglang")]
    folders = [_room(place) for place in (probe.run, probe.scratch, probe.cache)]
    way, clock = _way(node, verdict, probe)
    gpus = "?" if probe.gpu_error else kinds(probe) or _NONE
    driver, rdma = probe.versions.get("driver") or _NONE, " ".join(probe.interconnects) or _NONE
    sandbox, left = "no" if probe.sandbox else "blind" if probe.unseen else "yes", str(len(probe.leftovers) or _NONE)
    return (probe.host, probe.address or "none", *folders, way, clock, gpus, driver, rdma, *versions, sandbox, left)


def _room(place: Place) -> str:
    if place.error:
        return "no"
    return size(place.free_bytes) + ("" if place.free_inodes is None else f" {place.free_inodes / 1e6:.1f}M files")


def _way(node: int, verdict: Verdict, probe: NodeProbe) -> tuple[str, str]:
    first = verdict.probes.get(0)
    there = next((way for way in first.connections if way.to == node), None) if first is not None else None
    back = next((way for way in probe.connections if way.to == 0), None)
    if there is None or there.error or back is None or back.error:
        return "no", _NONE
    return f"{there.seconds * 1000:.1f} ms", f"{there.ahead_s:+.3f} s" if node else _NONE


def _line(trouble: Trouble) -> str:
    return f"{'refused' if trouble.weight is Weight.refuse else 'note'}: {trouble}"


def _end(verdict: Verdict) -> str:
    refusals = len(verdict.refusals)
    return f"{refusals} of these must be put right before a run starts there" if refusals else "a run can start there"
