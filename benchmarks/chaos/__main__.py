"""What does a run lose under kills: python -m benchmarks.chaos [--quick] [--seed N].

The quickstart for 5 updates, with six times its groups so that it lasts, two gateway shards, and a SIGKILL about every 30 s: ready
satellites, rollout cells, one gateway shard, the runner, in an order that the seed draws. `--quick`: 3 updates, fewer groups, a
kill about every 5 s, a small warm start and evaluation. Prints each kill; the last line is JSON:
{"kills", "tokens_lost", "tokens_resampled", "tokens_unreceived", "executions_unresolved", "orphans", "updates"}.
Exit code 1 when a promise is broken: the 2nd, 3rd, 5th and 6th must be 0, `tokens_unreceived` at most one progress interval for
each kill, all updates made.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.chaos.figures import Figures, state_at, token_faults, unresolved
from benchmarks.chaos.victims import Deck, Kind
from gyre_hpc.observability.events import read_events
from gyre_hpc.report.story import Story, read_story

PROGRESS = "gateway.progress_tokens=8"
"""A shard that died had a dozen calls open and counts one interval for each when it is back: they must be short for it to keep within
the one that a killed process may cost."""
_INTERVAL = 64
_LOOK_S = 0.05
_GONE_S = 10.0
"""After the launcher: what still lives then is an orphan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run, and how hard to hit it."""

    updates: int
    mean_s: float
    overrides: tuple[str, ...]
    within_s: float


FULL = Plan(updates=5, mean_s=30, overrides=("algo.groups_per_batch=72",), within_s=1800)
QUICK = Plan(
    updates=3,
    mean_s=5,
    overrides=("algo.groups_per_batch=30", "evaluation.tasks=40", "warm_start.executions=200", "warm_start.epochs=8"),
    within_s=280,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    at: float
    """Unix seconds."""
    kind: Kind
    name: str
    pid: int
    update: int


def disturb(run: DisturbedRun, deck: Deck, within_s: float) -> list[Kill]:
    """Until the run is over. Raises TimeoutError."""
    kills: list[Kill] = []
    begun, due = time.time(), 0.0
    while run.exit_code is None:
        time.sleep(_LOOK_S)
        scene = run.look()
        if time.time() - begun > within_s:
            raise TimeoutError(f"the run is not over after {within_s:.0f} s:\n{run.out.read_text()}")
        if run.phase != "training":
            continue
        due = due or time.time() + deck.pause_s() / 2
        if time.time() < due or (drawn := deck.draw(scene)) is None:
            continue
        kind, name = drawn
        with contextlib.suppress(ProcessLookupError):
            kills.append(Kill(at=time.time(), kind=kind, name=name, pid=run.kill(name), update=run.update))
            due = time.time() + deck.pause_s()
            print(f"{kills[-1].at - begun:7.1f} s  killed {name} (pid {kills[-1].pid}) as {kind.value}", flush=True)
    run.look()
    return kills


def orphans(run: DisturbedRun) -> int:
    """Processes that outlived the launcher, and a moment of grace."""
    until = time.monotonic() + _GONE_S
    while (living := run.family.look()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return len(living)


def table(kills: Sequence[Kill], story: Story) -> str:
    """One line per kill: when, whom, and in the middle of what, as the events tell afterwards."""
    rows = [f"{'at s':>7}{'update':>8}  {'victim':<12}{'as':<11}{'in the middle of':<40}noticed"]
    for kill in kills:
        ends = [
            event
            for event in story.of("process_ended", "cell_lost")
            if kill.name in (event.fields.get("process"), event.fields.get("cell")) and event.time >= kill.at
        ]
        noticed = f"after {ends[0].time - kill.at:.2f} s" if ends else "no"
        doing = state_at(story.events, kill.name, kill.at)
        rows.append(f"{kill.at - story.start:>7.1f}{kill.update:>8}  {kill.name:<12}{kill.kind.value:<11}{doing:<40.40}{noticed}")
    return "\n".join(rows)


def carry_out(plan: Plan, seed: int, folder: Path) -> int:
    """Run, disturb, tell; returns the exit code."""
    overrides = (f"algo.updates={plan.updates}", f"seed={seed}", "cluster.gateways=2", PROGRESS, *plan.overrides)
    with DisturbedRun(folder, overrides) as run:
        kills = disturb(run, Deck(seed, plan.mean_s), plan.within_s)
        left = orphans(run)
        if run.exit_code:
            print(f"the run ended with code {run.exit_code}:\n{run.out.read_text()}", file=sys.stderr)
        unreceived = run.unreceived.total
    story = read_story(folder)
    figures = Figures(
        kills=len(kills),
        tokens_lost=token_faults(story, "lost"),
        tokens_resampled=token_faults(story, "resampled"),
        tokens_unreceived=unreceived,
        executions_unresolved=len(unresolved(read_events(story.folder.events_folder))),
        orphans=left,
        updates=len({event.fields["update"] for event in story.of("applied")}),
    )
    print(table(kills, story))
    broken = figures.broken(_INTERVAL, plan.updates)
    for promise in broken:
        print(f"broken: {promise}")
    print(json.dumps(asdict(figures)))
    return 1 if broken or run.exit_code else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills in a quickstart run, and what they cost.")
    parser.add_argument("--quick", action="store_true", help="within 5 minutes: 3 updates, faster kills")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run, and of whom to kill when")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run folder there")
    args = parser.parse_args()
    plan = QUICK if args.quick else FULL
    with tempfile.TemporaryDirectory(prefix="gyre-chaos-") as above:
        sys.exit(carry_out(plan, args.seed, (args.keep or Path(above) / "run").absolute()))


if __name__ == "__main__":
    main()
