"""Token counters of all gateway shards over all attempts of a run.

A shard counts from its journal, so after a restart it goes on where it was; a new attempt begins at zero. What must never happen (lost,
resampled) follows from no journal: it is told as an event of its own when it happens.
"""

from collections import Counter

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
    """Newest counters of each shard in each attempt: its own last word, or the status, whichever saw more."""
    newest = {(event.process, event.attempt): dict(event.fields["counts"]) for event in story.of("tokens")}
    for name, gateway in story.status.gateways.items() if story.status is not None else ():
        assert story.status is not None
        told = newest.setdefault((name, story.status.attempt), {})
        for kind, num in gateway.tokens.items():
            told[kind] = max(told.get(kind, 0), num)
    return newest
