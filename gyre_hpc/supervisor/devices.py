"""Which GPUs each cell of this node sees. Ranks of a cell see all of the cell's on their node, and no others.

The map of nodes says which of the node's places a cell has. CUDA_VISIBLE_DEVICES may name one device several times: then cells share it,
which is for small models and tests.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gyre_hpc.protocol.node_map import CellPlace

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


def kind_here(devices: tuple[str, ...], root: Path = Path("/")) -> str:
    """What the driver calls this node's GPUs; empty where this process sees none. root: of the file system."""
    if not devices:
        return ""
    told = [path.read_text() for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))]
    models = {line.partition(":")[2].strip() for text in told for line in text.splitlines() if line.startswith("Model:")}
    return " and ".join(sorted(models)) or "GPUs that the driver does not name"


class Places:
    """The places of one node. A cell that nobody planned (on a node that joined) gets the next ones, and keeps them."""

    def __init__(self, planned: Iterable[CellPlace], devices: tuple[str, ...], *, joining: int = 0, ranks: int = 1) -> None:
        """joining: cells of `ranks` ranks that this node has room for beside the planned ones."""
        self._slots = {place.cell: place.slots for place in planned}
        self._devices, self._ranks = devices, ranks
        self._first_free = 1 + max((slot for slots in self._slots.values() for slot in slots), default=-1)
        self._end = self._first_free + joining * ranks

    def environment(self, cell: str) -> dict[str, str]:
        """What the environment of `cell` has beyond ours; empty where this node has too few devices for all its cells: all see all."""
        slots = self._slots.get(cell) or self._take(cell)
        if len(self._devices) < max(self._end, self._first_free):
            return {}
        return {VISIBLE: ",".join(self._devices[slot] for slot in slots)}

    def _take(self, cell: str) -> tuple[int, ...]:
        slots = tuple(range(self._first_free, self._first_free + self._ranks))
        self._first_free += self._ranks
        self._slots[cell] = slots
        return slots
