"""What does a run lose when its whole allocation dies: python -m benchmarks.preemption [--quick] [--seed N].

The quickstart but for the number of updates, and progress records every 8 tokens (its calls are shorter than the 64 of the default):
every process is killed at once, without a word, when a drawn share of a batch's executions has ended, and the run is resumed; 4
updates and 3 such preemptions, with `--quick` 2 and 1, and a small warm start. Executions in flight then are half done on average.
Prints each preemption; the last line is JSON:
{"tokens_saved_share", "time_saved_share", "executions_replayed", "executions_restarted", "trained_twice", "resume_s", "tokens_unreceived"}.

tokens_saved_share: of the journaled tokens of executions in flight, those that were not sampled again; time_saved_share: the same for
the time those calls had taken; tokens_unreceived: what may have been on its way to the journal beside them, at most (one interval for
each open call: with calls of some twenty tokens this bound says little);
resume_s: from the new start to the first newly sampled token, median. Exit code 1 when the
run does not end well, a token was lost or sampled twice, an execution trained twice, or less than 90 % of the tokens were saved.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.chaos.figures import token_faults
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.observability.status import read_status
from gyre_hpc.report.story import Story, read_story
from gyre_hpc.report.summary import summarize
from gyre_hpc.report.tokens import token_counts
from gyre_hpc.train.checkpoint_folder import newest_whole, read_state

PROGRESS = "gateway.progress_tokens=8"
_LOOK_S = 0.05
_PROMISED = 0.9
_IN_FLIGHT = 8
"""Executions that must be under way for a preemption to say something."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to run, and how often to take it away."""

    updates: int
    preemptions: int
    overrides: tuple[str, ...]
    within_s: float
    """Longest that one attempt may take."""


FULL = Plan(updates=4, preemptions=3, overrides=(), within_s=900)
QUICK = Plan(updates=2, preemptions=1, overrides=("evaluation.tasks=40", "warm_start.executions=200", "warm_start.epochs=8"), within_s=140)


def preempt(run: DisturbedRun, dice: random.Random, within_s: float) -> bool:
    """Kill everything at a drawn moment of the next batch; False: the run was over before."""
    begun = time.time()
    share = dice.uniform(0.1, 0.5)
    while run.exit_code is None:
        time.sleep(_LOOK_S)
        run.look()
        if time.time() - begun > within_s:
            raise TimeoutError(f"nothing to preempt after {within_s:.0f} s:\n{run.out.read_text()}")
        if run.phase == "training" and ended_share(run) >= share:
            run.family.end()
            run.family.end()  # those that a dying parent had just begun
            return True
    return False


def ended_share(run: DisturbedRun) -> float:
    """Of the executions of the batch that is being collected, those that are over; 0 when too few are under way."""
    status = read_status(run.folder.status)
    if status is None or status.executions.get("running", 0) < _IN_FLIGHT:
        return 0.0
    config = load_config(run.folder.config)
    batch = config.algo.groups_per_batch * config.algo.group_size
    return len(run.over) / batch - status.update


def finish(run: DisturbedRun, within_s: float) -> int:
    """Exit code. Raises TimeoutError."""
    begun = time.time()
    while run.exit_code is None:
        time.sleep(_LOOK_S)
        run.look()
        if time.time() - begun > within_s:
            raise TimeoutError(f"the run is not over after {within_s:.0f} s:\n{run.out.read_text()}")
    return run.exit_code


def resume_seconds(story: Story, starts: Sequence[float]) -> list[float]:
    """starts: Unix seconds of the launches, by attempt."""
    firsts = [
        next((event.time for event in story.of("first_token") if event.attempt == attempt), None) for attempt in range(1, len(starts) + 1)
    ]
    return [first - began for first, began in zip(firsts[1:], starts[1:], strict=True) if first is not None]


def trained_twice(folder: RunFolder) -> int:
    """Executions that stand more than once among those the newest checkpoint consumed."""
    newest = newest_whole(folder.checkpoints)
    consumed = [] if newest is None else list(read_state(newest)["consumed"])
    return len(consumed) - len(set(consumed))


def carry_out(plan: Plan, seed: int, folder: Path) -> int:
    """Run, preempt, resume, tell; returns the exit code."""
    dice = random.Random(seed)
    overrides = (f"algo.updates={plan.updates}", f"seed={seed}", PROGRESS, *plan.overrides)
    starts: list[float] = []
    code: int | None = None
    while code is None:
        with _attempt(folder, overrides, starts) as run:
            if len(starts) > plan.preemptions or not preempt(run, dice, plan.within_s):
                code = finish(run, plan.within_s)
            else:
                print(f"{time.time() - starts[0]:7.1f} s  attempt {len(starts)} killed in the batch of update {run.update}", flush=True)
    story = read_story(folder)
    figures = figures_of(story, starts)
    broken = judge(story, figures, code)
    for promise in broken:
        print(f"broken: {promise}", file=sys.stderr)
    print(json.dumps(figures))
    return 1 if broken else 0


@contextmanager
def _attempt(folder: Path, overrides: Sequence[str], starts: list[float]) -> Iterator[DisturbedRun]:
    """A new run, or the next attempt of the one in `folder`."""
    resumes = bool(starts)
    starts.append(time.time())
    with DisturbedRun(folder, () if resumes else overrides, resumes=resumes) as run:
        yield run


def figures_of(story: Story, starts: Sequence[float]) -> dict[str, Any]:
    replay = summarize(story).replay
    seconds = resume_seconds(story, starts)
    return {
        "tokens_saved_share": replay["tokens_saved_share"],
        "time_saved_share": replay["time_saved_share"],
        "executions_replayed": replay["executions_replayed"],
        "executions_restarted": replay["executions_restarted"],
        "trained_twice": trained_twice(story.folder),
        "tokens_unreceived": token_counts(story)["unreceived"],
        "resume_s": statistics.median(seconds) if seconds else None,
    }


def judge(story: Story, figures: dict[str, Any], code: int) -> list[str]:
    """Promises that do not hold."""
    said = [f"exit code {code}:\n{(story.folder.root.parent / 'printed').read_text()}"] if code else []
    said += [f"{num} tokens {what}" for what in ("lost", "resampled") if (num := token_faults(story, what))]
    if figures["trained_twice"]:
        said.append(f"{figures['trained_twice']} executions trained twice")
    if (figures["tokens_saved_share"] or 0.0) < _PROMISED:
        said.append(f"tokens_saved_share={figures['tokens_saved_share']}, promised {_PROMISED}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description="A run whose whole allocation dies, and what it costs.")
    parser.add_argument("--quick", action="store_true", help="within 5 minutes: 2 updates, one preemption")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run, and of when to kill")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run folder there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gyre-preemption-") as above:
        sys.exit(carry_out(QUICK if args.quick else FULL, args.seed, (args.keep or Path(above) / "run").absolute()))


if __name__ == "__main__":
    main()
