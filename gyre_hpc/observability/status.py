"""status.json: what the run is doing now. Written by the controller alone, by rename, so that a reader never sees half of it.

Most of it is the batch machine's own view; the controller's shell adds what needs a clock.
"""

from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.whole_file import write_whole


class CellStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One cell as the controller sees it."""

    name: str
    role: str
    """`rollout` or `train`, as ordered."""
    state: str
    """CellState by name."""
    version: str = ""
    """`<lineage>.<step>` it serves or trains from."""
    is_core: bool = False
    reason: str = ""
    """Why it does nothing at the moment; empty while it works."""
    live: int = 0
    """Calls running on it."""
    cpu_s: float = 0.0
    """CPU seconds of its processes since its start."""
    error: str = ""
    """What went wrong and is not cured yet."""
    pids: tuple[int, ...] = ()
    """Of its ranks."""
    engine_pids: tuple[int, ...] = ()
    """Of the server that is its engine, if it has one."""
    memory: dict[str, list[tuple[int, int, int]]] = {}
    """(rank, free, used) of its device after each of wake_engine, sleep_engine, wake_trainer, sleep_trainer, newest; bytes."""


class WaterlevelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's view (DESIGN §8) and its newest decision."""

    live: int = 0
    marginal: float = 0.0
    ready: float = 0.0
    cells_needed: int = 0
    theta: float = 0.0
    want: int = 0
    """Cells that should train now."""
    reason: str = ""


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway shard."""

    live: int = 0
    waiting: int = 0
    """Calls that have no cell at the moment."""
    tokens: dict[str, int] = {}
    """lost, resampled, unreceived, sampled, reprefilled."""
    cpu_s: float = 0.0


class RunnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One runner."""

    running: int = 0
    queued: int = 0
    cpu_s: float = 0.0
    harness_cpu_s: float = 0.0


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
    """starting, warm_collect, warm_fit, eval_before, training, eval_after or done."""
    update: int = 0
    """Optimizer steps made."""
    updates_total: int = 0
    version: str = ""
    pass_rate: float | None = None
    """Moving average over training executions; None before the first one ended."""
    pass_rates: dict[str, float] = {}
    """Evaluations: updates made -> pass rate on held-out tasks."""
    waterlevel: WaterlevelStatus = WaterlevelStatus()
    cells: tuple[CellStatus, ...] = ()
    executions: dict[str, int] = {}
    """By state: running, queued, scored, partial, unscored, infra_error."""
    batch: dict[str, Any] = {}
    """groups, of, full, reason, waiting, micro_batches."""
    gateways: dict[str, GatewayStatus] = {}
    runners: dict[str, RunnerStatus] = {}
    totals: dict[str, float] = {}
    """Counters of the batch machine since the run began; summary.json takes tokens and calls from here."""
    tokens_per_s: float = 0.0
    """Sampled tokens of all cells, lately."""
    progress: float = 0.0
    """Share of the present phase that is done, 0..1."""
    eta_s: float | None = None
    """Seconds to the end of the run; None while unknown."""
    update_s: float | None = None
    """Measured seconds per update; None before two were seen."""
    waits: tuple[WaitStatus, ...] = ()
    alarms: tuple[str, ...] = ()
    message: str = ""
    """One line for people: what happens now, or why it stopped."""


def write_status(path: Path, status: Status) -> None:
    """Raises OSError; the caller decides whether that stops anything."""
    write_whole(path, msgspec.json.encode(status))


def read_status(path: Path) -> Status | None:
    """None if it is not there yet. Raises msgspec.ValidationError naming the field that is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return None
