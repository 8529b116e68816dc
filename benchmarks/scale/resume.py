"""Part `resume`: what a long past costs the next attempt, and those who look at it.

A run makes one update; its first attempt is made longer by executions that ended and were trained (past.py); a second attempt is killed
in mid-batch with as many executions open as the runner takes; the third is measured.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.scale.figures import Figure
from benchmarks.scale.past import Past, Sizes, journal_bytes
from benchmarks.scale.watched import Sample, look
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import Event, EventReader

GROUP_SIZE = 8
WORKLOAD = (
    "+experiment=rehearsal", "cluster.cells=2", f"algo.group_size={GROUP_SIZE}",
    "engine.timed_tokens_per_s=400", "suite.soft_deadline_s=300", "suite.hard_deadline_s=330", "evaluation.tasks=0",
)  # fmt: skip
LOOKS = ("status", "calls", "report")
"""Commands of people; the last one writes summary.json."""
_DEADLINE_S = 240.0
_LOOK_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How many executions are in the journal, and how many of them open."""

    executions: tuple[int, ...]
    open: int
    groups: int
    """Of an update."""


FULL = Plan(executions=(1000, 3000, 10_000), open=200, groups=16)
QUICK = Plan(executions=(300, 1000), open=12, groups=4)


def measure(quick: bool) -> list[Figure]:
    """Seconds, CPU and memory of the start, by executions in the journal."""
    plan = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="gyre-resume-") as above:
        begun = Path(above) / "begun"
        with DisturbedRun(begun / "run", (*WORKLOAD, "algo.updates=1", f"algo.groups_per_batch={plan.groups}")) as run:
            _until(run, 1, lambda events: run.exit_code is not None, "its end")
        figures: list[Figure] = []
        for executions in plan.executions:
            place = Path(above) / str(executions)
            shutil.copytree(begun, place)
            figures += _with_past(place / "run", executions, plan)
            shutil.rmtree(place)
    return figures


def _with_past(folder: Path, executions: int, plan: Plan) -> list[Figure]:
    past = asyncio.run(_grow(folder, executions, plan.groups))
    overrides = (f"algo.updates={past.update + 2}", f"cluster.runner_capacity={plan.open}")
    kill_in_mid_batch(folder, overrides, plan.open)
    size = journal_bytes(RunFolder(folder).journal) / 1048576
    started = start_again(folder)
    name = f"resume_{executions}"
    note = f"{past.num_executions} executions, {past.num_calls} calls, {size:.0f} MiB of journal; {plan.open} open"
    watched = {
        f"{name}_{who}_{what}": (getattr(started.holds[who], what), unit)
        for who in ("gateway-0", "controller", "supervisor-0")
        for what, unit in (("cpu_s", "s"), ("peak_mib", "MiB"))
    }
    looks = {f"{name}_{what}_s": _timed(["gyre_hpc.cli", what, str(folder)]) for what in LOOKS}
    restart = json.loads(_python(["benchmarks.scale.shard_restart", str(folder)]).stdout)
    return [
        *(
            Figure(name=f"{name}_{key}", value=value, unit="s", note=note if key == "gateway_s" else "")
            for key, value in started.seconds.items()
        ),
        *(Figure(name=key.replace("-0", ""), value=value, unit=unit) for key, (value, unit) in watched.items()),
        *(Figure(name=key, value=value, unit="s") for key, value in looks.items()),
        Figure(
            name=f"{name}_shard_restart_s", value=restart["seconds"], unit="s", note="a shard of the first attempt, started again in it"
        ),
        Figure(name=f"{name}_shard_restart_mib", value=restart["peak_mib"], unit="MiB"),
    ]


async def _grow(folder: Path, executions: int, groups: int) -> Past:
    past = Past(RunFolder(folder), Sizes(), groups_per_batch=groups, group_size=GROUP_SIZE)
    await past.grow(executions)
    await past.close()
    return past


def kill_in_mid_batch(folder: Path, overrides: Sequence[str], open: int) -> None:
    """Another attempt, until so many executions have said something; then everything of it is killed at once."""
    with DisturbedRun(folder, overrides, resumes=True) as run:
        _until(run, 2, lambda events: sum(one.kind == "first_call" for one in events) >= open, f"{open} open executions")


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """How an attempt came up."""

    seconds: dict[str, float]
    """From the call of launch.py."""
    holds: dict[str, Sample]
    """By process, when the first token was sampled."""


def start_again(folder: Path) -> Started:
    """Resume until the first token."""
    called = time.time()
    with DisturbedRun(folder, (), resumes=True) as run:

        def is_there(events: list[Event]) -> bool:
            return any(event.kind == "first_token" for event in events)

        events = _until(run, 3, is_there, "a token")
        holds = {sample.name: sample for sample in look(run.family.look(), 0.0)}
    supervisor = next(sample for sample in holds.values() if sample.kind == "supervisor")
    replayed = next(event for event in events if event.kind == "journal_replayed")
    return Started(
        seconds={
            "children_s": min(event.time for event in events if event.kind == "process_started") - called,
            "gateway_s": replayed.time - called,
            "controller_s": next(event.time for event in events if event.kind == "attempt_started") - called,
            "first_token_s": next(event.time for event in events if event.kind == "first_token") - called,
        },
        holds=holds | {"supervisor-0": supervisor},
    )


def _until(run: DisturbedRun, attempt: int, is_there: Callable[[list[Event]], bool], what: str) -> list[Event]:
    """Events of that attempt until then. Raises RuntimeError, with what the run printed, when it ends before that or takes too long."""
    reader, events, limit = EventReader(run.folder.events_folder), list[Event](), time.monotonic() + _DEADLINE_S
    while True:
        has_ended = run.exit_code is not None
        run.family.look()
        events += [event for event in reader.poll() if event.attempt == attempt]
        if is_there(events):
            return events
        if has_ended or time.monotonic() > limit:
            raise RuntimeError(f"waited in vain for {what} (exit code {run.exit_code}):\n{run.out.read_text()}")
        time.sleep(_LOOK_S)


def _timed(module: Sequence[str]) -> float:
    begun = time.perf_counter()
    _python(module)
    return time.perf_counter() - begun


def _python(module: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([sys.executable, "-m", *module], check=False, capture_output=True, timeout=300)
    if b"Traceback" in done.stderr:
        raise RuntimeError(f"{' '.join(module)} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return done
