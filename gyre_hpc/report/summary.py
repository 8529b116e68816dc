"""summary.json: the run in numbers. Shares and rates are fractions, times seconds; a number that cannot be known yet is null.

Counts come from events, so that they hold over several attempts; what only processes count (tokens, CPU) also from the last status.
Evaluation and warm start enter no count but those that carry their name.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.observability.attempt_record import differences, read_records, told_anew
from gyre_hpc.observability.events import Event
from gyre_hpc.observability.idle import idle_by_reason, intervals
from gyre_hpc.protocol.identity import Version
from gyre_hpc.report.cpu import cpu_by_kind
from gyre_hpc.report.replay import replay_of
from gyre_hpc.report.startup import launch_overhead
from gyre_hpc.report.story import Story
from gyre_hpc.report.tokens import is_training, token_counts
from gyre_hpc.report.watch.signs import read_end
from gyre_hpc.whole_file import write_whole

FORMAT = 1
STATES = ("scored", "partial", "unscored", "infra_error")
TOKENS_OF_GATEWAYS = ("lost", "resampled", "unreceived", "reprefilled")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of summary.json; docs/formats.md says what each key means."""

    format: int = FORMAT
    experiment: str
    scheduler: str
    seed: int
    attempts: int
    versions: dict[str, str]
    versions_changed: list[str]
    told_anew: list[str]
    exit_code: int | None
    reason: str
    pass_rate_before: float | None
    pass_rate_after: float | None
    blind_pass_rate: float | None
    updates: int
    wall_s: float
    launch: dict[str, Any]
    cpu_s: dict[str, float]
    role_switches: dict[str, int]
    switch_s: dict[str, dict[str, float]]
    kv_moved: dict[str, float]
    satellites_joined_mid_batch: int
    micro_batches_by_satellites_share: float | None
    calls_continued_elsewhere: int
    executions: dict[str, int]
    replay: dict[str, Any]
    tokens: dict[str, int]
    evaluation_tokens: dict[str, int]
    max_logprob_gap: float
    on_policy_tokens: int
    idle_s: dict[str, float]
    updates_with_lend_and_recall: int
    staleness: dict[str, int]
    checkpoint: str | None


def summarize(story: Story) -> Summary:
    """Numbers of a run, finished or not."""
    finished = story.of("run_finished")
    records = read_records(story.folder)
    applied = _last_by(story.of("applied"), "update")
    micro_batches = sum(int(event.fields["micro_batches"]) for event in applied)
    by_satellites = sum(int(event.fields["by_satellites"]) for event in applied)
    accumulated = story.of("micro_batch_accumulated")
    before, after = _evaluations(story)
    counted = token_counts(story)
    return Summary(
        experiment=story.config.experiment,
        scheduler="async" if story.config.scheduler.mode.name == "async_split" else story.config.scheduler.mode.name,
        seed=story.config.seed,
        attempts=max((event.attempt for event in story.events), default=0),
        versions=records[-1].versions if records else {},
        versions_changed=differences(records),
        told_anew=told_anew(records),
        exit_code=int(finished[-1].fields["exit_code"]) if finished else None,
        reason=_reason(story, finished),
        pass_rate_before=before,
        pass_rate_after=after,
        blind_pass_rate=next((float(event.fields["pass_rate"]) for event in reversed(story.of("blind"))), None),
        updates=_steps(story.of("applied", "version_published")),
        wall_s=_wall(story),
        launch=launch_overhead(story),
        cpu_s=cpu_by_kind(story),
        role_switches={
            direction: sum(event.fields["direction"] == direction for event in story.of("switch"))
            for direction in ("rollout_to_train", "train_to_rollout")
        },
        switch_s=_switch_medians(story.of("switch")),
        kv_moved=_kv(story),
        satellites_joined_mid_batch=sum(int(event.fields["joined_mid_batch"]) for event in applied),
        micro_batches_by_satellites_share=by_satellites / micro_batches if micro_batches else None,
        calls_continued_elsewhere=len({str(event.fields["call"]) for event in story.of("call_ended") if _went_on_elsewhere(event)}),
        executions=_executions(story),
        replay=replay_of(story),
        tokens=_tokens(story, counted),
        evaluation_tokens={"sampled": counted["eval_sampled"], "sampled_warm_start": counted["warm_sampled"]},
        max_logprob_gap=max((float(event.fields["gap"]) for event in accumulated), default=0.0),
        on_policy_tokens=sum(int(event.fields["on_policy"]) for event in accumulated),
        idle_s=_idle(story),
        updates_with_lend_and_recall=_updates_with_both(story.of("lend", "recall", "applied")),
        staleness=_staleness(story.of("group_ready")),
        checkpoint=newest_checkpoint(story.folder.checkpoints, story.folder.root),
    )


def write_summary(story: Story) -> Summary:
    """Write summary.json by rename."""
    summary = summarize(story)
    write_whole(story.folder.summary, msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    return summary


def closing_line(summary: Summary, report: Path) -> str:
    """The last line that a run prints."""
    lends = summary.role_switches["rollout_to_train"]
    share = summary.micro_batches_by_satellites_share
    before, after = summary.pass_rate_before, summary.pass_rate_after
    rates = f"pass rate {percent(before)} -> {percent(after)} on held-out tasks"
    parts = [
        f"{summary.experiment}: {'not evaluated' if before is None and after is None else rates}",
        f"{summary.updates} updates",
        f"{lends} lends",
        f"{percent(share)} of micro-batches by satellites",
        f"{summary.tokens['lost'] + summary.tokens['resampled']} tokens lost or resampled",
        f"{summary.wall_s:.0f} s",
        f"report: {report}",
    ]
    return ", ".join(parts)


def percent(share: float | None) -> str:
    """A fraction for people."""
    return "-" if share is None else f"{100 * share:.1f} %"


def newest_checkpoint(checkpoints: Path, root: Path) -> str | None:
    """Path below the run folder of the newest checkpoint that is whole (its DONE is there)."""
    whole = []
    for marker in checkpoints.glob("*/DONE"):
        lineage, _, step = marker.parent.name.partition(".")
        if lineage.isdigit() and step.isdigit():
            whole.append((int(lineage), int(step), marker.parent))
    return str(max(whole)[2].relative_to(root)) if whole else None


def _steps(versions: list[Event]) -> int:
    """Of the newest version. An update whose `applied` died with the controller shows in the version that was loaded after it."""
    return max(0, Version.parse(str(versions[-1].fields["version"])).step) if versions else 0


def _reason(story: Story, finished: Sequence[Event]) -> str:
    """A job knows better what a signal meant than the run that was passed it."""
    if not finished:
        return "not finished"
    last = finished[-1]
    is_told = any(event.attempt == last.attempt for event in story.of("job_told"))
    end = read_end(story.folder, last.attempt) if is_told else None
    return str(last.fields["reason"]) if end is None else end.reason


def _evaluations(story: Story) -> tuple[float | None, float | None]:
    rates = {int(event.fields["slot"]): float(event.fields["pass_rate"]) for event in story.of("evaluation")}
    after = [slot for slot in rates if slot > 0]
    return rates.get(0), rates[max(after)] if after else None


def _wall(story: Story) -> float:
    """Seconds in which an attempt was alive; a pause between two attempts does not count."""
    spans: dict[int, tuple[float, float]] = {}
    for event in story.events:
        first, last = spans.get(event.attempt, (event.time, event.time))
        spans[event.attempt] = (min(first, event.time), max(last, event.time))
    return sum(last - first for first, last in spans.values())


def _switch_medians(switches: list[Event]) -> dict[str, dict[str, float]]:
    seconds: dict[str, dict[str, list[float]]] = {}
    for event in switches:
        steps: dict[str, float] = dict(event.fields["steps"])
        by_step = seconds.setdefault(str(event.fields["direction"]), {})
        for step, value in [*steps.items(), ("total", sum(steps.values()))]:
            by_step.setdefault(step, []).append(float(value))
    return {direction: {step: statistics.median(values) for step, values in steps.items()} for direction, steps in seconds.items()}


def _kv(story: Story) -> dict[str, float]:
    """Conversations of cells on their way to training: what became of their KV."""
    moved, stays = story.of("kv_moved"), story.of("kv_stays")
    went, of = (sum(int(event.fields[key]) for event in moved) for key in ("conversations", "of"))
    return {
        "conversations": went,
        "stayed": of - went + sum(int(event.fields["conversations"]) for event in stays),
        "tokens": sum(int(event.fields["tokens"]) for event in moved),
        "seconds": sum(float(event.fields["seconds"]) for event in moved),
    }


def _executions(story: Story) -> dict[str, int]:
    ended = [event for event in story.of("execution_ended") if event.fields.get("purpose") == "train"]
    states = {str(event.fields["execution"]): str(event.fields["state"]) for event in ended}
    known = story.status.executions if story.status is not None else {}
    # An end that is durable and whose event died with the controller is in the status; one that was tried again only in the events.
    counts = {state: max(sum(seen == state for seen in states.values()), known.get(state, 0)) for state in STATES}
    ready = _last_by(story.of("group_ready"), "group")
    return counts | {"branching": sum(int(event.fields["branching"]) for event in ready)}


def _tokens(story: Story, counted: Counter[str]) -> dict[str, int]:
    ready = _last_by(story.of("group_ready"), "group")
    tokens = {"sampled": counted["sampled"], "trained": sum(int(event.fields["trained_tokens"]) for event in ready)}
    return tokens | {name: counted[name] for name in TOKENS_OF_GATEWAYS}


def _went_on_elsewhere(event: Event) -> bool:
    return is_training(event) and len(set(event.fields["cells"])) > 1


def _idle(story: Story) -> dict[str, float]:
    """Largest first. A pause between two attempts is nobody's idle time."""
    seconds: Counter[str] = Counter()
    for attempt in {event.attempt for event in story.events}:
        events = [event for event in story.events if event.attempt == attempt]
        seconds.update(idle_by_reason(intervals(events, events[-1].time)))
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _updates_with_both(events: list[Event]) -> int:
    """Updates between whose predecessor and themselves at least one lend and one recall began."""
    seen: set[str] = set()
    updates: set[int] = set()
    for event in events:
        if event.kind == "applied":
            if {"lend", "recall"} <= seen:
                updates.add(int(event.fields["update"]))
            seen = set()
        else:
            seen.add(event.kind)
    return len(updates)


def _staleness(ready: list[Event]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for event in _last_by(ready, "group"):
        key = str(event.fields["staleness"])
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: int(item[0])))


def _last_by(events: list[Event], field: str) -> list[Event]:
    """The last event of each value of `field`, in order: a batch that is done again after a loss counts once."""
    last: dict[Any, Event] = {}
    for event in events:
        last.pop(event.fields[field], None)
        last[event.fields[field]] = event
    return list(last.values())
