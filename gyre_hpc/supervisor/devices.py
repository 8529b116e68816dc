"""Which GPUs each cell of this node sees. Ranks of a cell see all of the cell's, and no others.

A cell's slice follows from its number: cell k of m ranks has the devices k*m to k*m + m - 1 of those that this process sees.
CUDA_VISIBLE_DEVICES may name one device several times: then cells share it, which is for small models and tests.
"""

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def devices_here(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that this process sees, as CUDA_VISIBLE_DEVICES has them. root: of the file system."""
    named = environ.get(VISIBLE)
    if named is None:
        # As CUDA counts them: a container that has a part of the machine's devices begins at 0 too.
        return tuple(str(index) for index in range(len(list((root / "dev").glob("nvidia[0-9]*")))))
    devices: list[str] = []
    for device in (one.strip() for one in named.split(",")):
        if device in ("", "-1"):  # CUDA looks no further
            break
        devices.append(device)
    return tuple(devices)


def devices_of(cell: str, ranks: int, cells: int, devices: tuple[str, ...]) -> dict[str, str]:
    """What the environment of `cell` (`cell-3`) has beyond ours; empty where there are too few devices for `cells` cells of `ranks`
    ranks: all of them see all."""
    if len(devices) < cells * ranks:
        return {}
    first = int(cell.rpartition("-")[2]) * ranks
    return {VISIBLE: ",".join(devices[first : first + ranks])}
