"""What does a run lose when its whole allocation dies: python -m benchmarks.preemption [--quick] [--seed N].

Executions of some 1,200 sampled tokens in 8 calls, on timed engines with everything else real (journal with fdatasync, progress records
as by default: 64 tokens or 1 s). The run is taken away at drawn instants, in turn by SIGKILL of every process, by SIGTERM to every
process, and by an orderly stop, and resumed: 12 times, with `--quick` 3 times. Prints each; the last line is JSON:
{"tokens_saved_share", "time_saved_share", "tokens_at_stake", "tokens_unjournaled", "done_share", "executions_replayed",
"executions_restarted", "diverged", "trained_twice", "tokens_unreceived", "resume_s"}.

tokens_saved_share: of the tokens that engines had sampled for executions in flight, those that were not sampled again. What engines had
sampled is what they count themselves: at a SIGKILL they are asked while the shards already stand still, so what they sample meanwhile
counts as lost; a cell that ends in order notes its engine's last word. tokens_unjournaled: sampled by then and in no journal.
done_share: how far executions in flight had come, of all their tokens, on average. time_saved_share: of the time that their journaled
calls had taken. tokens_unreceived: the bound that shards give themselves. resume_s: from the new start to the first newly sampled token,
median. Exit code 1 when the run does not end well, a token was lost or sampled twice, an execution trained twice, or less than 90 % of the
tokens were saved.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.preemption.engines import last_words
from benchmarks.preemption.figures import figures_of, journaled, judge
from benchmarks.preemption.plan import BASE, FULL, QUICK, Plan
from benchmarks.preemption.strike import await_end, await_moment, take_away
from gyre_hpc.observability.events import read_events
from gyre_hpc.report.story import read_story


def carry_out(plan: Plan, seed: int, folder: Path) -> int:
    """Run, preempt, resume, tell; returns the exit code."""
    dice = random.Random(seed)
    overrides = (*BASE, f"algo.updates={plan.updates}", f"seed={seed}")
    starts: list[float] = []
    unjournaled: dict[int, int] = {}
    for kind in plan.preemptions:
        with _attempt(folder, overrides, starts) as run:
            attempt = len(starts)
            if not await_moment(run, attempt, dice.uniform(*plan.after_s), plan.within_s):
                if run.exit_code:
                    raise SystemExit(f"attempt {attempt} ended by itself with {run.exit_code}:\n{run.out.read_text()}")
                break
            sampled = take_away(run, kind)
            root = run.folder
        if sampled is None:
            sampled = last_words(read_events(root.events_folder), attempt)
        unjournaled[attempt] = max(0, sampled - journaled(root.journal, attempt))
        print(
            f"{time.time() - starts[0]:7.1f} s  attempt {attempt}: {kind}, {unjournaled[attempt]} of {sampled} tokens were in no journal",
            flush=True,
        )
    code = _last(plan, folder, overrides, starts)
    story = read_story(folder)
    figures = figures_of(story, starts, unjournaled)
    broken = judge(story, figures, code)
    for promise in broken:
        print(f"broken: {promise}", file=sys.stderr)
    print(json.dumps(figures))
    return 1 if broken else 0


def _last(plan: Plan, folder: Path, overrides: Sequence[str], starts: list[float]) -> int:
    """The attempt that is left alone; the exit code of the run."""
    with _attempt(folder, overrides, starts) as run:
        return await_end(run, plan.within_s)


@contextmanager
def _attempt(folder: Path, overrides: Sequence[str], starts: list[float]) -> Iterator[DisturbedRun]:
    """A new run, or the next attempt of the one in `folder`."""
    resumes = bool(starts)
    starts.append(time.time())
    with DisturbedRun(folder, () if resumes else overrides, resumes=resumes) as run:
        yield run


def main() -> None:
    parser = argparse.ArgumentParser(description="A run whose whole allocation dies, and what it costs.")
    parser.add_argument("--quick", action="store_true", help="within 5 minutes: 2 updates, one preemption of each kind")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the run, and of when to kill")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the run folder there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gyre-preemption-") as above:
        sys.exit(carry_out(QUICK if args.quick else FULL, args.seed, (args.keep or Path(above) / "run").absolute()))


if __name__ == "__main__":
    main()
