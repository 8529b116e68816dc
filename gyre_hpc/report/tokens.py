"""Token counters of all gateway shards over all attempts of a run.

A shard counts from its journal, so after a restart it goes on where it was; a new attempt begins at zero. What must never happen (lost,
resampled) follows from no journal: it is told as an event of its own when it happens. A shard that was killed with its attempt left no
last word: of what it sampled, the calls that it ended are known.
"""

from collections import Counter, defaultdict

from gyre_hpc.observability.events import Event
from gyre_hpc.report.story import Story

FAULTS = ("lost", "resampled")


def token_counts(story: Story) -> Counter[str]:
    """Tokens by kind: training under the plain name, others as `eval_...` and `warm_...`."""
    total: Counter[str] = Counter()
    for counts in _newest(story).values():
        total.update(counts)
    for name in FAULTS:
        told = sum(int(event.fields["num"]) for event in story.of("token_fault") if event.fields["what"] == name and is_training(event))
        total[name] = max(total[name], told)
    return total


def is_training(event: Event) -> bool:
    """It is about a call of a training execution."""
    return str(event.fields["call"]).startswith("train-")


def _newest(story: Story) -> dict[tuple[str, int], dict[str, int]]:
    """Newest counters of each shard in each attempt: its own last word or the status, whichever saw more; else the calls it ended."""
    newest = {(event.process, event.attempt): dict(event.fields["counts"]) for event in story.of("tokens")}
    for name, gateway in story.status.gateways.items() if story.status is not None else ():
        assert story.status is not None
        told = newest.setdefault((name, story.status.attempt), {})
        for kind, num in gateway.tokens.items():
            told[kind] = max(told.get(kind, 0), num)
    for shard, counts in _of_ended_calls(story).items():
        newest.setdefault(shard, dict(counts))
    return newest


def _of_ended_calls(story: Story) -> dict[tuple[str, int], Counter[str]]:
    """What the calls that each shard ended have sampled, some of it maybe in an attempt before."""
    calls = {(event.process, event.attempt, str(event.fields["call"])): int(event.fields["num_output"]) for event in story.of("call_ended")}
    found: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for (process, attempt, call), num_output in calls.items():
        purpose = call.partition("-")[0]
        found[process, attempt]["sampled" if purpose == "train" else f"{purpose}_sampled"] += num_output
    return found
