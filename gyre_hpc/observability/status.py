"""status.json: what the run is doing now. Written by the controller alone, by rename, so that a reader never sees half of it."""

import os
from pathlib import Path

import msgspec


class CellStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One cell as the controller sees it."""

    name: str
    role: str
    """`rollout` or `train`, as ordered."""
    state: str
    """CellState by name, or `set_aside`."""
    version: str = ""
    """`<lineage>.<step>` it serves or trains from."""
    is_core: bool = False
    reason: str = ""
    """Why it does nothing at the moment; empty while it works."""
    live: int = 0
    """Calls running on it."""


class WaterlevelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's view (DESIGN §8)."""

    live: int = 0
    marginal: float = 0.0
    ready: float = 0.0
    cells_needed: int = 0
    theta: float = 0.0


class WaitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits: who must end it, why, and until when."""

    owner: str
    reason: str
    deadline: float
    """Unix seconds."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of status.json."""

    time: float
    """Unix seconds of this writing."""
    experiment: str = ""
    attempt: int = 0
    phase: str = "starting"
    """starting, warm_start, evaluating_before, training, evaluating_after, finished or failed."""
    update: int = 0
    """Optimizer steps made."""
    updates_total: int = 0
    version: str = ""
    pass_rate: float | None = None
    """Moving average over training executions; None before the first one ended."""
    waterlevel: WaterlevelStatus = WaterlevelStatus()
    cells: tuple[CellStatus, ...] = ()
    executions: dict[str, int] = {}
    """By state: queued, running, scored, partial, unscored, infra_error."""
    tokens_per_s: float = 0.0
    """Sampled tokens of all cells, lately."""
    progress: float = 0.0
    """Share of the present phase that is done, 0..1."""
    eta_s: float | None = None
    """Seconds to the end of the run, None while unknown."""
    waits: tuple[WaitStatus, ...] = ()
    alarms: tuple[str, ...] = ()
    message: str = ""
    """One line for people: what happens now, or why it stopped."""


def write_status(path: Path, status: Status) -> None:
    """Raises OSError; the caller decides whether that stops anything."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_bytes(msgspec.json.encode(status))
    os.replace(aside, path)


def read_status(path: Path) -> Status | None:
    """None if it is not there yet. Raises msgspec.ValidationError naming the field that is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return None
