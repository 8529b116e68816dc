"""From the start of an attempt to its first sampled token: what the launch cost, and which rank was the slowest."""

import statistics
from typing import Any

from gyre_hpc.observability.events import Event
from gyre_hpc.report.story import Story


def launch_overhead(story: Story) -> dict[str, Any]:
    """Of the newest attempt, in seconds: {"attempt", "first_token_s", "registered_s", "steps", "slowest"}; empty without events.

    registered_s: until the last process of the first round could be reached; steps: median over ranks; slowest: per step, the rank
    that took longest, with its node. Clocks are those of the nodes: between two nodes they differ by what their clocks do.
    """
    if not story.events:
        return {}
    attempt = max(event.attempt for event in story.events)
    events = [event for event in story.events if event.attempt == attempt]
    began = events[0].time
    births = [event for event in events if event.kind == "startup" and event.fields["incarnation"] == 1]
    registered = {str(event.fields["process"]): event.time for event in reversed(events) if event.kind == "process_registered"}
    return {
        "attempt": attempt,
        "first_token_s": next((event.time - began for event in events if event.kind == "first_token"), None),
        "registered_s": max(registered.values()) - began if registered else None,
        "steps": {step: statistics.median(of) for step, of in _by_step(births).items()},
        "slowest": {step: _slowest(births, step) for step in _by_step(births)},
    }


def _by_step(births: list[Event]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for event in births:
        for step, value in event.fields["steps"].items():
            seconds.setdefault(str(step), []).append(float(value))
    return seconds


def _slowest(births: list[Event], step: str) -> dict[str, Any]:
    having = [event for event in births if step in event.fields["steps"]]
    event = max(having, key=lambda event: float(event.fields["steps"][step]))
    fields = event.fields
    return {"rank": f"{fields['process']}.{fields['rank']}", "host": fields["host"], "seconds": float(fields["steps"][step])}
