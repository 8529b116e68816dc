"""What an attempt brought: the crash-loop guard counts attempts that brought nothing.

attempts/<n>/progress.json is written by the job before the attempt begins.
"""

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.status import read_status
from gyre_hpc.whole_file import write_whole


class Mark(msgspec.Struct, frozen=True):
    """How far a run is, by its files alone."""

    step: int
    """Newest checkpoint that is whole; -1: none."""
    tokens: int
    """Sampled, as the controller's last status has them."""

    def is_beyond(self, other: "Mark") -> bool:
        return self.step > other.step or self.tokens > other.tokens


def mark(folder: RunFolder) -> Mark:
    steps = [int(step) for done in folder.checkpoints.glob("*/DONE") if (step := done.parent.name.rpartition(".")[2]).isdigit()]
    try:
        status = read_status(folder.status)
    except msgspec.DecodeError:
        status = None
    totals = {} if status is None else status.totals
    return Mark(max(steps, default=-1), int(sum(count for name, count in totals.items() if name.startswith("sampled_"))))


def begin(folder: RunFolder, attempt: int) -> None:
    """Raises OSError."""
    write_whole(folder.attempts / str(attempt) / "progress.json", msgspec.json.encode(mark(folder)))


def fruitless(folder: RunFolder, attempt: int) -> int:
    """How many attempts in a row, up to and with `attempt`, came no further than where they began."""
    now, count = mark(folder), 0
    for number in range(attempt, 0, -1):
        try:
            began = msgspec.json.decode((folder.attempts / str(number) / "progress.json").read_bytes(), type=Mark)
        except (OSError, msgspec.MsgspecError):
            return count
        if now.is_beyond(began):
            return count
        count += 1
    return count
