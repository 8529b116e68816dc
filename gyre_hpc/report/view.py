"""Watching a run from outside: reads the run folder at an interval, redraws a terminal, or prints plain lines when it is none."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import msgspec
from rich.console import Console
from rich.live import Live

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import Event, EventReader
from gyre_hpc.observability.status import Status, read_status
from gyre_hpc.report.lines import Teller
from gyre_hpc.report.screen import screen

INTERVAL_S = 0.5
NUM_NEWS = 6


class View(ABC):
    """Something that shows events and the newest status. Use as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def show(self, events: list[Event], status: Status | None) -> None:
        """Events since the last time, in order, and the newest status."""

    @abstractmethod
    def say(self, line: str) -> None:
        """A line of its own."""

    @abstractmethod
    def close(self) -> None:
        """Give the terminal back."""


class PlainView(View):
    """A line per event that matters."""

    def __init__(self, console: Console) -> None:
        self._console, self._teller = console, Teller()

    def show(self, events: list[Event], status: Status | None) -> None:
        for event in events:
            line = self._teller.line(event, status)
            if line is not None:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._console.file.flush()


class LiveView(View):
    """A screen that is redrawn; what it said last stays."""

    def __init__(self, console: Console) -> None:
        self._teller = Teller()
        self._news: list[str] = []
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, events: list[Event], status: Status | None) -> None:
        lines = [self._teller.line(event, status) for event in events]
        self._news = [*self._news, *[line for line in lines if line is not None]][-NUM_NEWS:]
        self._live.update(screen(status, self._news) if status is not None else "\n".join(self._news), refresh=True)

    def say(self, line: str) -> None:
        """Above what is redrawn."""
        self._live.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()


class _Output(Console):
    """rich ends the process when nobody reads any more; whoever shows a run decides that here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("nobody reads the output any more")


def make_view(console: Console | None = None) -> View:
    """A screen on a terminal, plain lines elsewhere. The view raises OSError when its reader or terminal is gone."""
    console = console or _Output()
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


def follow(folder: RunFolder, is_over: Callable[[], bool], view: View, interval_s: float = INTERVAL_S) -> None:
    """Show the run until `is_over`; what was written before that is shown too. The caller owns and closes `view`."""
    reader = EventReader(folder.events_folder)
    while True:
        last = is_over()
        view.show(reader.poll(), _status(folder))
        if last:
            return
        time.sleep(interval_s)


def _status(folder: RunFolder) -> Status | None:
    try:
        return read_status(folder.status)
    except msgspec.DecodeError:  # of another version of ours; events still tell
        return None
