"""One plain line per event that matters, for logs and pipes. Pure."""

from gyre_hpc.observability.events import Event
from gyre_hpc.observability.status import Status
from gyre_hpc.report.summary import percent

FRESH_S = 10.0
"""Rate and ETA of a status that was written longer after an update say nothing about that update."""

PHASES = {
    "starting": "starting",
    "warm_collect": "warm start: scripted agents work through the gateway",
    "warm_fit": "warm start: the core imitates them",
    "eval_before": "evaluation before the first update",
    "training": "training",
    "eval_after": "evaluation after the last update",
    "done": "done",
}


class Teller:
    """Remembers what belongs into the line of an update."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._lends = self._recalls = 0
        self._passed = self._size = 0
        self._said: set[str] = set()

    def line(self, event: Event, status: Status | None) -> str | None:
        """The line for `event`, None if it does not matter to people. Call it for every event, in order."""
        self._start = event.time if self._start is None else self._start
        text = self._text(event, status)
        return None if text is None else f"[{span(event.time - self._start):>7}] {text}"

    def _once(self, text: str) -> str | None:
        """Every shard says the same of its template."""
        known, self._said = text in self._said, self._said | {text}
        return None if known else text

    def _text(self, event: Event, status: Status | None) -> str | None:
        fields = event.fields
        match event.kind:
            case "lend":
                self._lends += 1
            case "recall":
                self._recalls += 1
            case "group_ready":
                self._passed += int(fields["passed"])
                self._size += int(fields["size"])
            case "phase":
                return PHASES.get(str(fields["phase"]), str(fields["phase"]))
            case "blind":
                return f"blind script that never reads a file: {percent(float(fields['pass_rate']))} of {fields['total']} held-out tasks"
            case "evaluation":
                rate = percent(float(fields["pass_rate"]))
                return f"held-out tasks after {fields['slot']} updates: {rate} ({fields['passed']} of {fields['total']})"
            case "warm_start" if "cached" in fields:
                return f"warm start taken from the cache: {fields['cached']}"
            case "applied":
                return self._applied(event, status)
            case "commit_failed":
                return f"commit of update {fields['update']} failed and is done again: {fields['reason']}"
            case "chat_format":
                return self._once(f"chat template: {fields['notice']}")
            case "cell_lost":
                return f"{fields['cell']} lost: {fields['reason']}"
            case "cell_restarted":
                return f"{fields['cell']} starts again"
            case "attempt_started" if int(fields["attempt"]) > 1:
                return f"attempt {fields['attempt']}"
            case "controller_restarted":
                return f"the controller was restarted at update {fields['update']}"
            case "alarm":
                return f"alarm: {fields['what']}" + (f": {fields['reason']}" if fields.get("reason") else "")
            case "run_finished":
                return f"finished: {fields['reason']}"
        return None

    def _applied(self, event: Event, status: Status | None) -> str:
        made = int(event.fields["update"]) + 1
        of = f"/{status.updates_total}" if status is not None and status.updates_total else ""
        rate = percent(self._passed / self._size) if self._size else "-"
        parts = [f"update {made}{of}", f"pass rate {rate}", f"{self._lends} lent", f"{self._recalls} recalled"]
        parts.append(f"{event.fields['by_satellites']}/{event.fields['micro_batches']} micro-batches by satellites")
        if status is not None and abs(status.time - event.time) <= FRESH_S:
            parts.append(f"{status.tokens_per_s:.0f} tokens/s")
            if status.eta_s is not None:
                parts.append(f"ETA {span(status.eta_s)}")
        self._lends = self._recalls = self._passed = self._size = 0
        return " · ".join(parts)


def span(seconds: float) -> str:
    """Seconds for people: 42s, 3m05s, 2h07m."""
    whole = round(max(seconds, 0.0))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
