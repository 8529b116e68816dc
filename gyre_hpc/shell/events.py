"""The event file of a process that has a loop: what waits to be written is written by a timer, which is armed only while something waits."""

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.shell.timers import after_from_any_thread


def open_events(folder: RunFolder, process: str, attempt: int) -> EventWriter:
    """To be called within the loop. Raises OSError if the file cannot be opened."""
    return EventWriter(folder.events(process, attempt), process, attempt, after_from_any_thread())
