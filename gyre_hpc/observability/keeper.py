"""What status.json needs a memory for: pass rate as a moving average, tokens per second, time to the end. Pure; time comes in.

The controller's shell hands every note to `note` and asks for `status` when the machine wants status.json rewritten.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gyre_hpc.observability.status import CellStatus, Status, make_status

PASS_RATE_MEMORY = 192
"""Executions: two batches of the quickstart, so that the average follows an update without shaking at each execution."""
RATE_WINDOW_S = 10.0


class StatusKeeper:
    """One controller's memory for its status."""

    def __init__(self, *, experiment: str, attempt: int) -> None:
        self._experiment, self._attempt = experiment, attempt
        self._pass_rate: float | None = None
        self._num_seen = 0
        self._phase, self._phase_since = "", 0.0
        self._eval_before_s = 0.0
        self._first_applied: tuple[int, float] | None = None
        """Updates made and unix time, when training of this attempt began."""
        self._sampled: list[tuple[float, int]] = []
        self._last_tokens: dict[str, int] = {}
        self._num_sampled = 0

    def note(self, unix_s: float, kind: str, fields: Mapping[str, Any]) -> None:
        """Learn from one event."""
        if kind == "phase":
            if self._phase == "eval_before":
                self._eval_before_s = unix_s - self._phase_since
            self._phase, self._phase_since = str(fields["phase"]), unix_s
            if self._phase == "training":
                self._first_applied = (int(fields["update"]), unix_s)
        elif kind == "execution_ended" and fields.get("purpose") == "train" and fields.get("score") is not None:
            self._num_seen += 1
            weight = 1 / min(self._num_seen, PASS_RATE_MEMORY)
            self._pass_rate = (1 - weight) * (self._pass_rate or 0.0) + weight * bool(fields["passed"])

    def status(self, unix_s: float, plain: Mapping[str, Any]) -> Status:
        """The machine's view `plain` with what this adds. Raises msgspec.ValidationError."""
        status = make_status({"time": unix_s, **plain})
        return msgspec.structs.replace(
            status,
            experiment=self._experiment,
            attempt=self._attempt,
            pass_rate=self._pass_rate,
            tokens_per_s=self._rate(unix_s, status.cells),
            eta_s=self._eta(unix_s, status),
        )

    def _rate(self, unix_s: float, cells: tuple[CellStatus, ...]) -> float:
        for cell in cells:
            now = cell.tokens.get("sampled", 0)
            last = self._last_tokens.get(cell.name, 0)
            # A restarted cell counts from zero again.
            self._num_sampled += now - last if now >= last else now
            self._last_tokens[cell.name] = now
        self._sampled.append((unix_s, self._num_sampled))
        while len(self._sampled) > 2 and unix_s - self._sampled[1][0] >= RATE_WINDOW_S:
            self._sampled.pop(0)
        (start, before), (end, after) = self._sampled[0], self._sampled[-1]
        return (after - before) / (end - start) if end > start else 0.0

    def _eta(self, unix_s: float, status: Status) -> float | None:
        if status.phase == "done":
            return 0.0
        if status.phase == "eval_after":
            return max(0.0, self._eval_before_s - (unix_s - self._phase_since)) if self._eval_before_s else None
        if status.phase != "training" or self._first_applied is None or status.update <= self._first_applied[0]:
            return None
        per_update = (unix_s - self._first_applied[1]) / (status.update - self._first_applied[0])
        return (status.updates_total - status.update) * per_update + self._eval_before_s
