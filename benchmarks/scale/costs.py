"""What a run that is over cost its control plane, from its own notes: CPU seconds, messages, inputs."""

from benchmarks.scale.figures import Figure
from benchmarks.scale.observed import CONTROL, WatchedRun, totals


def control_costs(run: WatchedRun, prefix: str) -> list[Figure]:
    """CPU per minute of life of each kind of process, messages per second, time per input of the batch machine."""
    traffic, began = run.events("traffic"), run.events("run_started")[0].time
    life_s = max(event.time for event in traffic) - began
    used = run.events("cpu")
    figures = []
    for kind in CONTROL:
        cpu_s = sum(event.fields["cpu_s"] for event in used if event.process.startswith(kind))
        figures.append(Figure(name=f"{prefix}_{kind}_cpu_s_per_min", value=60 * cpu_s / life_s, unit="s/min"))
    inputs = totals(traffic, "inputs", "controller").values()
    count, seconds = sum(one[0] for one in inputs), sum(one[1] for one in inputs)
    controller_s = sum(event.fields["cpu_s"] for event in used if event.process == "controller")
    messages = sum(count for count, _ in totals(traffic, "received").values())
    return [
        *figures,
        Figure(
            name=f"{prefix}_batch_input_us",
            value=1e6 * seconds / count,
            unit="us",
            note="CPU of the batch machine for one input, mean",
        ),
        Figure(name=f"{prefix}_controller_cpu_us_per_input", value=1e6 * controller_s / count, unit="us", note="HTTP, imports and all"),
        Figure(name=f"{prefix}_messages_per_s", value=messages / life_s, unit="1/s", note="taken in by all processes"),
        *(_messages(run, prefix, life_s)),
    ]


def _messages(run: WatchedRun, prefix: str, life_s: float) -> list[Figure]:
    """The kinds that grow with the cells."""
    traffic, figures = run.events("traffic"), []
    for kind, sender in (
        ("CellReport", "cell"),
        ("Order", "controller"),
        ("Table", "controller"),
        ("Directory", "supervisor"),
        ("Register", ""),
    ):
        count, size = totals(traffic, "sent", sender).get(kind, (0, 0))
        note = f"{count:.0f} of {size / max(1, count):.0f} bytes"
        figures.append(Figure(name=f"{prefix}_{kind.lower()}_per_s", value=count / life_s, unit="1/s", note=note))
        figures.append(Figure(name=f"{prefix}_{kind.lower()}_bytes_per_s", value=size / life_s, unit="B/s"))
    return figures
