"""Action WriteStatus: what the machine says of itself, put into the schema people's tools read, with rates and an ETA."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.clock import monotonic_s, unix_s
from gyre_hpc.machines.batch.actions import WriteStatus
from gyre_hpc.observability.status import (
    CellStatus,
    GatewayStatus,
    RunnerStatus,
    Status,
    WaitStatus,
    WaterlevelStatus,
    read_status,
    write_status,
)

_WINDOW_S = 10.0


class StatusWriter:
    """The one writer of status.json."""

    def __init__(self, path: Path, *, experiment: str, attempt: int) -> None:
        self._path, self._experiment, self._attempt = path, experiment, attempt
        self._one_at_a_time = asyncio.Lock()
        self._sampled: list[tuple[float, float]] = []
        self._updates: list[tuple[float, int]] = []
        """When the first and the newest update was seen."""
        self._update_s = _known(path)
        """Until two updates were seen here, that of the controller before."""

    async def write(self, key: str, action: WriteStatus, progress: Callable[[Any], None]) -> None:
        """Raises OSError; the machine notes it and goes on."""
        async with self._one_at_a_time:
            await asyncio.get_running_loop().run_in_executor(None, write_status, self._path, self._status(action.status))

    def _status(self, raw: dict[str, Any]) -> Status:
        now = unix_s()
        level = msgspec.convert(raw["waterlevel"] or {}, WaterlevelStatus)
        executions = {name: count for name, count in raw["executions"].items() if isinstance(count, int)}
        executions["running"] = executions.pop("live", 0)
        totals = raw["totals"]
        return Status(
            time=now,
            experiment=self._experiment,
            attempt=self._attempt,
            phase=raw["phase"],
            update=raw["update"],
            updates_total=raw["updates_total"],
            version=raw["version"],
            pass_rate=raw["train_pass_rate"],
            pass_rates=raw["pass_rates"],
            waterlevel=level,
            cells=tuple(_cell(cell) for cell in raw["cells"]),
            executions=executions,
            batch=raw["batch"],
            gateways=msgspec.convert(raw["gateways"], dict[str, GatewayStatus]),
            runners=msgspec.convert(raw["runners"], dict[str, RunnerStatus]),
            totals=totals,
            tokens_per_s=self._rate(sum(totals.get(f"sampled_{purpose}", 0) for purpose in ("train", "eval", "warm"))),
            progress=_progress(raw),
            eta_s=self._eta(raw),
            update_s=self._update_s,
            waits=tuple(WaitStatus(owner=wait["owner"], reason=wait["reason"], deadline=now + wait["left_s"]) for wait in raw["waits"]),
            alarms=tuple(raw["alarms"]),
            message=raw["reason"] or level.reason,
        )

    def _rate(self, total: float) -> float:
        now = monotonic_s()
        self._sampled = [sample for sample in self._sampled if now - sample[0] < _WINDOW_S] + [(now, total)]
        (start, first), (end, last) = self._sampled[0], self._sampled[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def _eta(self, raw: dict[str, Any]) -> float | None:
        """From the time of the updates made since this process began; None before the first."""
        now, update = monotonic_s(), int(raw["update"])
        if raw["phase"] != "training":
            return None
        if not self._updates or self._updates[-1][1] != update:
            self._updates = [*self._updates[:1], (now, update)]
        (start, first), (end, last) = self._updates[0], self._updates[-1]
        if last == first:
            return None
        self._update_s = (end - start) / (last - first)
        return max(0.0, (raw["updates_total"] - update) * self._update_s - (now - end))


def _known(path: Path) -> float | None:
    try:
        before = read_status(path)
    except (OSError, msgspec.MsgspecError):  # damaged, or of another version: it is measured again
        return None
    return None if before is None else before.update_s


def _cell(cell: dict[str, Any]) -> CellStatus:
    state, _, reason = cell["activity"].partition(":")
    return CellStatus(
        name=cell["name"],
        role=cell["role"],
        state=state,
        version=cell["version"],
        is_core=cell["core"],
        reason=reason,
        live=cell["live"],
        cpu_s=cell["cpu_s"],
        error=cell["error"],
        pids=tuple(cell["pids"]),
        engine_pids=tuple(cell["engine_pids"]),
        memory={step: [(rank, free, used) for rank, free, used in figures] for step, figures in cell["memory"].items()},
    )


def _progress(raw: dict[str, Any]) -> float:
    """Share of the phase that is done."""
    if raw["phase"] == "warm_fit":
        return float(raw["fit_progress"])
    if raw["trial"]:
        return float(raw["trial"]["done"]) / max(1, raw["trial"]["total"])
    if raw["phase"] == "training":
        return float(raw["update"] + raw["batch"]["groups"] / max(1, raw["batch"]["of"])) / max(1, raw["updates_total"])
    return 1.0 if raw["phase"] == "done" else 0.0
