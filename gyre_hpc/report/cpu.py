"""CPU seconds by kind of process, from `cpu` events, `process_ended` events and the last status, whichever saw more."""

from gyre_hpc.observability.events import Event
from gyre_hpc.report.story import Story


def cpu_by_kind(story: Story) -> dict[str, float]:
    """Seconds by kind: cell, controller, gateway, harness, runner, supervisor, ... and `total`."""
    seconds = _from_events(story.of("cpu"))
    for name, value in _from_status(story).items():
        seconds[name] = max(seconds.get(name, 0.0), value)
    kinds: dict[str, float] = {}
    for name, value in seconds.items():
        kind = name.rstrip("0123456789").rstrip("-")
        kinds[kind] = kinds.get(kind, 0.0) + value
    return {kind: round(value, 3) for kind, value in sorted(kinds.items())} | {"total": round(sum(kinds.values()), 3)}


def _from_events(events: list[Event]) -> dict[str, float]:
    """Counters of one process grow until it is replaced; then they begin at zero again, and both count."""
    done: dict[str, float] = {}
    last: dict[str, float] = {}
    for event in events:
        pairs = [(event.process, float(event.fields["cpu_s"]))]
        if event.process.startswith("runner"):
            pairs.append((event.process.replace("runner", "harness"), float(event.fields["children_s"])))
        for name, value in pairs:
            if value < last.get(name, 0.0):
                done[name] = done.get(name, 0.0) + last[name]
            last[name] = value
    return {name: done.get(name, 0.0) + value for name, value in last.items()}


def _from_status(story: Story) -> dict[str, float]:
    if story.status is None:
        return {}
    seconds = {cell.name: cell.cpu_s for cell in story.status.cells}
    seconds |= {name: gateway.cpu_s for name, gateway in story.status.gateways.items()}
    for name, runner in story.status.runners.items():
        seconds[name] = runner.cpu_s
        seconds[name.replace("runner", "harness")] = runner.harness_cpu_s
    return {name: value for name, value in seconds.items() if value > 0}
