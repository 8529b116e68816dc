"""From whom a cell pulls the snapshot of a version: a few stores, which stay the same while they are there.

If every store that comes to have it were named to all that still lack it, an update would cost orders in the square of the cells.
"""

from collections.abc import Mapping

from gyre_hpc.machines.batch.fleet import Fleet
from gyre_hpc.protocol.identity import Version

MOST = 4


def holders_of(fleet: Fleet, version: Version) -> dict[str, str]:
    """Cells that have it, the core first, and the addresses of their stores."""
    cells = sorted((cell for cell in fleet.usable() if cell.has(version)), key=lambda cell: cell is not fleet.core)
    return {cell.name: cell.report.snapshot_url for cell in cells if cell.report is not None}


def choose_sources(known: tuple[str, ...], holders: Mapping[str, str], core: str, turn: int) -> tuple[str, ...]:
    """Names of the cells to pull from: of the `known` ones those that are left, and more once there are twice as many holders as
    before. turn: so that different cells take different ones beside the core."""
    if not holders:
        return ()
    wanted = min(MOST, 1 << (len(holders).bit_length() - 1))
    kept = tuple(name for name in known if name in holders)
    if len(kept) >= wanted:
        return kept
    names = list(holders)
    start = turn % len(names)
    others = [name for name in (core, *names[start:], *names[:start]) if name in holders and name not in kept]
    return (*kept, *dict.fromkeys(others))[:wanted]
