"""What a run folder tells: events, status, configuration. Everything in this room starts from a Story, and reads nothing else."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import open_folder
from gyre_hpc.errors import UserError
from gyre_hpc.observability.events import Event, read_events
from gyre_hpc.observability.status import Status, read_status
from gyre_hpc.supervisor.attempts import end_of, highest_attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """One run as its files tell it, finished or not."""

    folder: RunFolder
    config: Config
    events: tuple[Event, ...]
    """By time."""
    status: Status | None

    def of(self, *kinds: str) -> list[Event]:
        """Events of these kinds, by time."""
        return [event for event in self.events if event.kind in kinds]

    @property
    def start(self) -> float:
        """Unix seconds of the first event; 0 without events."""
        return self.events[0].time if self.events else 0.0

    @property
    def end(self) -> float:
        """Unix seconds of the last event."""
        return self.events[-1].time if self.events else 0.0


def read_story(path: str | Path) -> Story:
    """Raises NoRun when `path` is no run folder, UserError for a damaged one."""
    folder, config = open_folder(path)
    try:
        status = read_status(folder.status)
    except msgspec.DecodeError as error:
        remedy = f"its status.json is damaged or of another version ({error}); go on with the run, or remove that file"
        raise UserError("RUN", str(path), remedy) from error
    return Story(folder=folder, config=config, events=tuple(read_events(folder.events_folder)), status=status)


def is_over(folder: RunFolder) -> bool:
    """The newest attempt has ended with all its processes, or there was none."""
    attempt = highest_attempt(folder.attempts)
    return attempt == 0 or end_of(folder, attempt).exists()
