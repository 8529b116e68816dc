"""What was lost, from the files of the run and from what its engines had sampled. Pure but for reading."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.figures import token_faults
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.report.story import Story
from gyre_hpc.report.summary import summarize
from gyre_hpc.report.tokens import token_counts
from gyre_hpc.report.trained import trained_groups
from gyre_hpc.trajectory.segment import read_records

PROMISED = 0.9


def journaled(folder: Path, attempt: int) -> int:
    """Tokens that the shards wrote down in this attempt."""
    records = (record for path in folder.glob(f"*-{attempt}-*.gyj") for record in read_records(path.read_bytes())[0])
    return sum(len(record.output_ids) // 4 for record in records if isinstance(record, CallProgress))


def saved_share(replay: Mapping[str, Any], unjournaled: int) -> float | None:
    """Of the tokens that engines had sampled for executions in flight, those that were not sampled again."""
    at_stake = replay["tokens_at_stake"] + unjournaled
    return replay["tokens_saved"] / at_stake if at_stake else None


def done_shares(story: Story) -> list[float]:
    """Of each execution each time it was taken up: its tokens then, of all that it has in the end."""
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for event in story.of("call_ended"):
        call = str(event.fields["call"])
        ends[call.rpartition("/")[0]][call] = int(event.fields["num_output"])
    taken_up = [event.fields for event in story.of("execution_taken_up")]
    return [int(one["tokens"]) / total for one in taken_up if one["tokens"] and (total := sum(ends[str(one["execution"])].values()))]


def resume_seconds(story: Story, starts: Sequence[float]) -> list[float]:
    """starts: Unix seconds of the launches, by attempt."""
    firsts = [
        next((event.time for event in story.of("first_token") if event.attempt == attempt), None) for attempt in range(1, len(starts) + 1)
    ]
    return [first - began for first, began in zip(firsts[1:], starts[1:], strict=True) if first is not None]


def trained_twice(folder: RunFolder) -> int:
    """Executions that went into the weights more often than once, by the controller's log."""
    return load_config(folder.config).algo.group_size * sum(times - 1 for times in trained_groups(folder).values())


def figures_of(story: Story, starts: Sequence[float], unjournaled: Mapping[int, int]) -> dict[str, Any]:
    """unjournaled: of each attempt that was taken away, what its engines had sampled and no shard had written down."""
    replay, done, seconds = summarize(story).replay, done_shares(story), resume_seconds(story, starts)
    return {
        "tokens_saved_share": saved_share(replay, sum(unjournaled.values())),
        "time_saved_share": replay["time_saved_share"],
        "tokens_at_stake": replay["tokens_at_stake"] + sum(unjournaled.values()),
        "tokens_unjournaled": sum(unjournaled.values()),
        "done_share": statistics.fmean(done) if done else None,
        "executions_replayed": replay["executions_replayed"],
        "executions_restarted": replay["executions_restarted"],
        "diverged": replay["diverged"],
        "trained_twice": trained_twice(story.folder),
        "tokens_unreceived": token_counts(story)["unreceived"],
        "resume_s": statistics.median(seconds) if seconds else None,
    }


def judge(story: Story, figures: Mapping[str, Any], code: int) -> list[str]:
    """Promises that do not hold."""
    said = [f"exit code {code}:\n{(story.folder.root.parent / 'printed').read_text()}"] if code else []
    said += [f"{num} tokens {what}" for what in ("lost", "resampled") if (num := token_faults(story, what))]
    if figures["trained_twice"]:
        said.append(f"{figures['trained_twice']} executions trained twice")
    if (figures["tokens_saved_share"] or 0.0) < PROMISED:
        said.append(f"tokens_saved_share={figures['tokens_saved_share']}, promised {PROMISED}")
    return said
