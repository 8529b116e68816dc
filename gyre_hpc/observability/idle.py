"""Every second of a cell has a reason: sums per cell and reason out of `cell_state` events. Pure.

The controller notes a `cell_state` event whenever what a cell does changes; its `reason` is empty while the cell works. A second is busy,
idle for a named reason, or switching; together they are the whole time from the cell's first event to the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gyre_hpc.observability.events import Event

SWITCHING = ("draining", "switching", "handing_in")
NOT_THERE = ("starting", "lost")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A stretch of time in which a cell did one thing."""

    cell: str
    state: str
    reason: str
    """Why it did nothing; empty while it worked."""
    start: float
    """Unix seconds."""
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def idle_reason(self) -> str:
        """Empty when busy. Switching, starting and being lost are reasons of their own."""
        if self.reason:
            return self.reason
        if self.state in SWITCHING:
            return "switching"
        return self.state if self.state in NOT_THERE else ""


def intervals(events: Iterable[Event], end: float) -> list[Interval]:
    """Stretches of every cell by start, without gaps from its first `cell_state` event to `end` (unix seconds)."""
    open_since: dict[str, Event] = {}
    done: list[Interval] = []
    for event in events:
        if event.kind != "cell_state":
            continue
        cell = str(event.fields["cell"])
        before = open_since.get(cell)
        if before is not None:
            done.append(_interval(cell, before, event.time))
        open_since[cell] = event
    done += [_interval(cell, event, max(end, event.time)) for cell, event in open_since.items()]
    return sorted(done, key=lambda interval: (interval.start, interval.cell))


def idle_by_reason(stretches: Iterable[Interval]) -> dict[str, float]:
    """Seconds of all cells by reason; busy time is not in it."""
    sums: dict[str, float] = {}
    for stretch in stretches:
        if stretch.idle_reason:
            sums[stretch.idle_reason] = sums.get(stretch.idle_reason, 0.0) + stretch.seconds
    return sums


def idle_by_cell(stretches: Iterable[Interval]) -> dict[str, dict[str, float]]:
    """Seconds by cell and reason; the reason of busy time is the empty text."""
    sums: dict[str, dict[str, float]] = {}
    for stretch in stretches:
        cell = sums.setdefault(stretch.cell, {})
        cell[stretch.idle_reason] = cell.get(stretch.idle_reason, 0.0) + stretch.seconds
    return sums


def _interval(cell: str, event: Event, end: float) -> Interval:
    # Clocks of two attempts may step back; a stretch never has a negative length.
    return Interval(
        cell=cell, state=str(event.fields["state"]), reason=str(event.fields.get("reason", "")), start=event.time, end=max(event.time, end)
    )
