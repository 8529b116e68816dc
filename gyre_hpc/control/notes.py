"""Where the batch machine's notes go: the event file, and the tracker once per update.

Each event leaves the process at once: a killed controller would take along ends that the summary counts and that nobody tells again.
"""

from collections.abc import Mapping
from typing import Any

from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.tracker import Tracker


class Notes:
    """Sink of one controller."""

    def __init__(self, events: EventWriter, tracker: Tracker) -> None:
        self._events, self._tracker = events, tracker
        self._groups: list[Mapping[str, Any]] = []
        self._micro_batches: list[Mapping[str, Any]] = []

    def note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record one event; numbers of an update go to the tracker when it was applied."""
        self._events.note(kind, fields)
        self._events.flush()
        if kind == "group_ready":
            self._groups.append(fields)
        elif kind == "micro_batch_accumulated":
            self._micro_batches.append(fields)
        elif kind == "evaluation":
            self._tracker.scalars(int(fields["slot"]), {"evaluation/pass_rate": float(fields["pass_rate"])})
        elif kind == "applied":
            self._tracker.scalars(int(fields["update"]) + 1, self._update_scalars(fields))
            self._groups.clear()
            self._micro_batches.clear()

    def close(self) -> None:
        self._tracker.close()
        self._events.close()

    def _update_scalars(self, applied: Mapping[str, Any]) -> dict[str, float]:
        executions = sum(int(group["size"]) for group in self._groups) or 1
        targets = sum(int(one["targets"]) for one in self._micro_batches) or 1
        scalars = {
            "train/pass_rate": sum(int(group["passed"]) for group in self._groups) / executions,
            "train/mean_score": sum(float(group["mean_score"]) for group in self._groups) / (len(self._groups) or 1),
            "train/staleness": sum(int(group["staleness"]) for group in self._groups) / (len(self._groups) or 1),
            "train/clip_fraction": sum(int(one["clipped"]) for one in self._micro_batches) / targets,
            "train/max_logprob_gap": max((float(one["gap"]) for one in self._micro_batches), default=0.0),
            "train/targets": float(targets),
            "elastic/by_satellites": float(applied["by_satellites"]) / max(1, int(applied["micro_batches"])),
        }
        for name in ("grad_norm", "lr", "clip_scale", "update_norm"):
            if name in applied:
                scalars[f"train/{name}"] = float(applied[name])
        return scalars
