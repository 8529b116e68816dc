"""Part `soak`: does anything grow? A day of a run with waits in place of compute, in a few minutes, with kills at its beginning.

Control plane, gateways, runner and harness are the real ones; engine and trainer wait (kind timed), each wait shortened by the same
factor. What a process costs per execution is so the same as in a day; what it costs per second of waiting is not.
"""

import contextlib
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.scale.figures import Figure
from benchmarks.scale.watched import Sample, look
from gyre_hpc.observability.events import read_events

KILLS = ("cell-1", "gateway-1", "cell-2", "gateway-0")
CALM = 1 / 3
"""Part of the time in which processes are killed and caches fill; slopes are of the rest."""
_LOOK_S = 1.0
_START_S = 90.0
WORKLOAD = (
    "+experiment=rehearsal", "cluster.cells=3", "cluster.gateways=2", "cluster.runner_capacity=16", "algo.groups_per_batch=4",
    "algo.group_size=4", "algo.updates=1000000", "engine.timed_tokens_per_s=8", "trainer.timed_tokens_per_s=60",
    "trainer.timed_switch_s=30", "journal.segment_bytes=1000000",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How long, and how much shorter than it would be."""

    real_s: float
    hours: float
    """Simulated."""

    @property
    def time_scale(self) -> float:
        return self.real_s / (3600 * self.hours)


FULL = Plan(real_s=600, hours=24)
QUICK = Plan(real_s=50, hours=2)


def measure(quick: bool) -> list[Figure]:
    """Slopes per simulated hour of every kind of process, and of the run folder."""
    plan = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="gyre-soak-") as above:
        folder = Path(above) / "run"
        with DisturbedRun(folder, (*WORKLOAD, f"engine.time_scale={plan.time_scale:.8f}")) as run:
            samples, sizes = watch(run, plan)
        kinds = [event.kind for event in read_events(run.folder.events_folder)]
    note = f"{plan.hours:g} simulated hours in {plan.real_s:g} s, {len(KILLS)} kills in the first third"
    return [
        Figure(name="soak_hours", value=plan.hours, unit="h", note=note),
        Figure(name="soak_executions", value=kinds.count("execution_ended") / 2, unit="", note="ended; each is noted twice"),
        Figure(name="soak_updates", value=kinds.count("applied"), unit=""),
        *figures_of(samples, plan),
        Figure(name="soak_folder_mib_per_h", value=slope(sizes, plan), unit="MiB/h", note="run folder"),
    ]


def watch(run: DisturbedRun, plan: Plan) -> tuple[list[Sample], list[tuple[float, float]]]:
    """Samples of all processes and (seconds, MiB) of the run folder, from the first update's phase on."""
    _until_training(run)
    begun, samples, sizes = time.monotonic(), list[Sample](), list[tuple[float, float]]()
    kills = [(plan.real_s * CALM * (number + 0.5) / (len(KILLS) + 1), name) for number, name in enumerate(KILLS)]
    while (at := time.monotonic() - begun) < plan.real_s:
        if run.exit_code is not None:
            raise RuntimeError(f"the run ended with code {run.exit_code}:\n{run.out.read_text()}")
        run.look()
        samples += look(run.family.look(), at)
        sizes.append((at, _size_mib(run.folder.root)))
        if kills and at > kills[0][0]:
            # One that is just starting has no pid yet: the next look finds it.
            with contextlib.suppress(KeyError, ProcessLookupError):
                run.kill(kills[0][1])
                kills.pop(0)
        time.sleep(_LOOK_S)
    return samples, sizes


def figures_of(samples: Sequence[Sample], plan: Plan) -> list[Figure]:
    """By kind of process: memory and its slope, descriptors, sockets, threads and children at the start and at the end of the calm part."""
    by_kind: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample)
    return [figure for kind, of_kind in sorted(by_kind.items()) for figure in _of_kind(kind, of_kind, plan)]


def _of_kind(kind: str, samples: Sequence[Sample], plan: Plan) -> list[Figure]:
    calm = [sample for sample in samples if sample.at > plan.real_s * CALM]
    by_pid: defaultdict[int, list[Sample]] = defaultdict(list)
    for sample in calm:
        by_pid[sample.pid].append(sample)
    slopes = [slope([(one.at, one.pss_mib) for one in of_pid], plan) for of_pid in by_pid.values()]
    steepest = max((one for one in slopes if one is not None), default=None)
    window = plan.real_s * (1 - CALM) / 6
    first = [one for one in calm if one.at < plan.real_s * CALM + window]
    last = [one for one in calm if one.at > plan.real_s - window]
    return [
        Figure(name=f"soak_{kind}_mib", value=_median(last, "pss_mib"), unit="MiB", note=f"PSS of one of {len(by_pid)} at the end"),
        Figure(name=f"soak_{kind}_mib_per_h", value=steepest, unit="MiB/h", note="per simulated hour, the steepest of them"),
        *(
            Figure(name=f"soak_{kind}_{what}_{when}", value=_median(some, what), unit="")
            for what in ("fds", "sockets", "threads", "children")
            for when, some in (("start", first), ("end", last))
        ),
    ]


def slope(points: Sequence[tuple[float, float]], plan: Plan) -> float | None:
    """Least squares over the calm part of (real seconds, value), per simulated hour; None for too few points."""
    calm = [(at * plan.hours / plan.real_s, value) for at, value in points if at > plan.real_s * CALM]
    if len(calm) < 10 or calm[-1][0] == calm[0][0]:
        return None
    return statistics.linear_regression([at for at, _ in calm], [value for _, value in calm]).slope


def _median(samples: Sequence[Sample], what: str) -> float | None:
    return statistics.median(float(getattr(sample, what)) for sample in samples) if samples else None


def _until_training(run: DisturbedRun) -> None:
    limit = time.monotonic() + _START_S
    while run.phase != "training":
        if run.exit_code is not None or time.monotonic() > limit:
            raise RuntimeError(f"the run does not train after {_START_S:g} s:\n{run.out.read_text()}")
        run.look()
        time.sleep(0.2)


def _size_mib(folder: Path) -> float:
    """Of all files; those that go meanwhile do not count."""
    total = 0
    # Not rglob: it fails where a folder goes that it is in.
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(above, name)).st_size
    return total / 1048576
