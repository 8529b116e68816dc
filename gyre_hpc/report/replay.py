"""What became of executions whose process was gone: what was at stake, what of it was saved, what began from nothing.

From events, so it holds over attempts. A life that ended before its first request had nothing to take up and is not counted.
"""

from collections.abc import Mapping
from typing import Any

from gyre_hpc.report.story import Story


def replay_of(story: Story) -> dict[str, Any]:
    """Group `replay` of the summary; shares are null while nothing was at stake."""
    taken_up = [event.fields for event in story.of("execution_taken_up")]
    replayed = [event.fields for event in story.of("call_replayed")]
    tokens, seconds = _sum(taken_up, "tokens"), _sum(taken_up, "seconds")
    saved, saved_s = _sum(replayed, "num_output"), _sum(replayed, "seconds")
    return {
        "executions_replayed": sum(int(fields["tokens"]) > 0 for fields in taken_up),
        "executions_restarted": len(story.of("execution_restarted")),
        "calls_replayed": len(replayed),
        "diverged": sum(event.fields["reason"] == "diverged" for event in story.of("branch")),
        "tokens_at_stake": int(tokens),
        "tokens_saved": int(saved),
        "tokens_saved_share": saved / tokens if tokens else None,
        "time_at_stake_s": seconds,
        "time_saved_s": saved_s,
        "time_saved_share": saved_s / seconds if seconds else None,
    }


def _sum(events: list[dict[str, Any]], field: str) -> float:
    return sum(float(fields[field]) for fields in events)


def replay_line(totals: Mapping[str, float]) -> str:
    """For people, from the counters of a status; empty while no execution was taken up."""
    num, at_stake, saved = (int(totals.get(name, 0)) for name in ("executions_replayed", "tokens_at_stake", "tokens_saved"))
    if not num:
        return ""
    parts = [f"{num} executions taken up from the journal", f"{saved} of {at_stake} recorded tokens given out again"]
    for name, what in (("replay_diverged", "went another way"), ("executions_restarted", "begun anew")):
        if totals.get(name):
            parts.append(f"{int(totals[name])} {what}")
    return f"replay: {', '.join(parts)}"
