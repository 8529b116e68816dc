"""report.html: one self-contained page about a run. No script, nothing fetched; follows the reader's light or dark setting."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import msgspec

from gyre_hpc.observability.idle import SWITCHING, Interval, idle_by_reason, intervals
from gyre_hpc.report import charts
from gyre_hpc.report.story import Story
from gyre_hpc.report.style import PAGE
from gyre_hpc.report.summary import STATES, Summary, percent, summarize
from gyre_hpc.whole_file import write_whole

NUM_BINS = 60


def write_report(story: Story) -> None:
    """Write report.html by rename."""
    write_whole(story.folder.report, render(story, summarize(story)).encode())


def render(story: Story, summary: Summary) -> str:
    """The whole page."""
    stretches = intervals(story.events, story.end)
    title = f"{summary.experiment} · seed {summary.seed} · {summary.scheduler}"
    body = "\n".join(
        [
            f"<header><h1>{escape(title)}</h1><p>{escape(_headline(summary))}</p></header>",
            _section("Pass rate", "Training executions of each update, and held-out tasks before and after.", _pass_rate(story, summary)),
            _section(
                "Cells", "What each cell did. Pale: it had the role but nothing to do. Thin lines: updates.", _cells(story, stretches)
            ),
            _section("Executions by state", "Ended training executions over time.", _executions(story)),
            _section("Idle time by reason", "Seconds of all cells in which nothing was computed.", _idle(stretches)),
            _section("Numbers", "summary.json", _table(summary)),
        ]
    )
    return PAGE.replace("{{title}}", escape(title)).replace("{{body}}", body)


def _headline(summary: Summary) -> str:
    rates = f"pass rate {percent(summary.pass_rate_before)} → {percent(summary.pass_rate_after)}"
    switches = sum(summary.role_switches.values())
    return f"{rates} · {summary.updates} updates · {switches} role switches · {summary.wall_s:.0f} s · {summary.reason}"


def _section(title: str, text: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{body}</section>"


def _legend(entries: Mapping[str, str]) -> str:
    items = "".join(f'<span><i class="{style}"></i>{escape(name)}</span>' for name, style in entries.items())
    return f'<div class="legend">{items}</div>'


def _pass_rate(story: Story, summary: Summary) -> str:
    passed: dict[int, tuple[int, int]] = {}
    for event in story.of("group_ready"):
        update = int(event.fields["update"])
        before = passed.get(update, (0, 0))
        passed[update] = (before[0] + int(event.fields["passed"]), before[1] + int(event.fields["size"]))
    training = [(float(update), good / size) for update, (good, size) in sorted(passed.items()) if size]
    held_out = [(float(event.fields["slot"]), float(event.fields["pass_rate"])) for event in story.of("evaluation")]
    lines = [
        charts.Curve(name="training", points=training, style="s-train"),
        charts.Curve(name="held-out", points=held_out, style="s-eval", dots=True),
    ]
    if summary.blind_pass_rate is not None and training:
        ends = (min(training[0][0], 0.0), max(x for x, _ in [*training, *held_out]))
        lines.append(charts.Curve(name="blind script", points=[(x, summary.blind_pass_rate) for x in ends], style="s-blind"))
    return _legend({line.name: line.style for line in lines}) + charts.curves(lines, x_label="update", y_percent=True, x_whole=True)


def _cells(story: Story, stretches: list[Interval]) -> str:
    rows: dict[str, list[charts.Bar]] = {}
    for stretch in stretches:
        rows.setdefault(stretch.cell, []).append(_bar(stretch, story.start))
    marks = [(event.time - story.start, f"update {event.fields['update']} made") for event in story.of("applied")]
    legend = _legend(
        {
            "rollout": "c-rollout", "rollout, idle": "c-rollout pale", "train": "c-train", "train, idle": "c-train pale",
            "switching": "c-switch", "starting": "c-start", "lost": "c-lost",
        }
    )  # fmt: skip
    ordered = dict(sorted(rows.items(), key=lambda item: (len(item[0]), item[0])))
    return legend + charts.timeline(ordered, marks, end=story.end - story.start)


def _bar(stretch: Interval, start: float) -> charts.Bar:
    state = stretch.state
    style = {"rollout": "c-rollout", "train": "c-train", "starting": "c-start", "lost": "c-lost"}.get(state, "c-switch")
    pale = " pale" if stretch.reason and state in ("rollout", "train") else ""
    what = f"{state} ({stretch.reason})" if stretch.reason else state
    title = f"{stretch.cell}: {what}, {stretch.seconds:.2f} s from {stretch.start - start:.1f} s"
    return charts.Bar(start=stretch.start - start, end=stretch.end - start, style=style + pale, title=title)


def _executions(story: Story) -> str:
    ended = [event for event in story.of("execution_ended") if event.fields.get("purpose") == "train"]
    length = story.end - story.start
    styles = dict(zip(STATES, ("e-scored", "e-partial", "e-unscored", "e-infra"), strict=True))
    if not ended or length <= 0:
        return charts.nothing()
    bins: list[dict[str, float]] = [{} for _ in range(NUM_BINS)]
    for event in ended:
        place = min(int((event.time - story.start) / length * NUM_BINS), NUM_BINS - 1)
        state = str(event.fields["state"])
        bins[place][state] = bins[place].get(state, 0) + 1
    return _legend(styles) + charts.stacked(bins, styles, end=length)


def _idle(stretches: list[Interval]) -> str:
    sums = dict(sorted(idle_by_reason(stretches).items(), key=lambda item: -item[1]))
    total = sum(stretch.seconds for stretch in stretches)
    switching = sum(stretch.seconds for stretch in stretches if stretch.state in SWITCHING)
    busy = total - sum(sums.values())
    text = f"{total:.0f} cell-seconds: {100 * busy / total:.1f} % busy, {100 * switching / total:.1f} % switching." if total else ""
    return f"<p>{text}</p>" + charts.shares(sums, total)


def _table(summary: Summary) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in flat(msgspec.to_builtins(summary)))
    return f'<div class="scroll"><table>{rows}</table></div>'


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every number of a summary."""
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from flat(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, shown(inner)


def shown(value: Any) -> str:
    """A value for people."""
    if value is None or value in ({}, []):
        return "-"
    if isinstance(value, list):
        return "; ".join(map(shown, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
