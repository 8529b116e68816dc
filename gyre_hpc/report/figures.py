"""Runs at a glance: a line per run, with what it alone was told and the figures that a sweep is made for."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.config.changes import leaves, plain
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import NoRun
from gyre_hpc.observability.idle import idle_by_reason, intervals
from gyre_hpc.report.columns import columns, fits, wrapped
from gyre_hpc.report.html import shown
from gyre_hpc.report.story import Story
from gyre_hpc.report.summary import Summary, percent, summarize

_SAYS_NOTHING = ("resume", "paths.run", "launch.force")
_END = {None: "not finished", 0: "done", 130: "stopped"}


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    name: str
    told: dict[str, Any]
    """Keys of the configuration in which the runs differ."""
    tokens_per_s: float | None
    """Sampled for training, over wall_s."""
    idle_share: float | None
    """Of all cell-seconds."""
    summary: Summary


def runs_in(path: str) -> list[str]:
    """The run folder that `path` is, or those right below it, by their numbers. Raises NoRun when there are none."""
    folder = Path(path).expanduser()
    if RunFolder(folder).is_run or not folder.is_dir():
        return [path]
    found = [entry for entry in folder.iterdir() if RunFolder(entry).is_run]
    if not found:
        raise NoRun("RUN", path)
    return [str(entry) for entry in sorted(found, key=lambda entry: [int(part) if part.isdigit() else part for part in _parts(entry.name)])]


def figures(named: Sequence[tuple[str, Story]]) -> list[RunFigures]:
    """Of runs, finished or not."""
    told = [{key: plain(value) for key, value in leaves(story.config) if key not in _SAYS_NOTHING} for _, story in named]
    different = [key for key in told[0] if any(one[key] != told[0][key] for one in told)]
    return [_figures(name, story, {key: one[key] for key in different}) for (name, story), one in zip(named, told, strict=True)]


def table(runs: Sequence[RunFigures]) -> str:
    """A line per run. What the lines have no room for follows below: first keys, then the names, which are numbers then."""
    names, keys = [run.name for run in runs], list(runs[0].told)
    shown, num_shown = _widest(runs, names, keys)
    below = [_told(key, runs) for key in keys[num_shown:]]
    if not fits(shown):
        numbers = [str(number) for number, _ in enumerate(runs, 1)]
        shown, num_shown = _widest(runs, numbers, keys)
        below = [
            *(f"{number}: {name}" for number, name in zip(numbers, names, strict=True)),
            *(_told(key, runs) for key in keys[num_shown:]),
        ]
    return "\n".join([shown, "", *below] if below else [shown])


def _widest(runs: Sequence[RunFigures], names: Sequence[str], keys: Sequence[str]) -> tuple[str, int]:
    """With as many keys as fit, and how many these are."""
    for num_keys in range(len(keys), 0, -1):
        if fits(shown := _lines(runs, names, keys[:num_keys])):
            return shown, num_keys
    return _lines(runs, names, []), 0


def _lines(runs: Sequence[RunFigures], names: Sequence[str], keys: Sequence[str]) -> str:
    heads = ["run", *keys, "end", "wall s", "updates", "pass rate", "tokens/s", "lends", "idle", "lost"]
    rows = [[name, *(str(run.told[key]) for key in keys), *_row(run)] for name, run in zip(names, runs, strict=True)]
    return columns([heads, *rows])


def _told(key: str, runs: Sequence[RunFigures]) -> str:
    return wrapped(f"{key}: {', '.join(str(run.told[key]) for run in runs)}")


def _figures(name: str, story: Story, told: dict[str, Any]) -> RunFigures:
    summary = summarize(story)
    rate = summary.tokens["sampled"] / summary.wall_s if summary.wall_s else None
    return RunFigures(name=name, told=told, tokens_per_s=rate, idle_share=_idle_share(story), summary=summary)


def _idle_share(story: Story) -> float | None:
    """A pause between two attempts is nobody's time."""
    total = idle = 0.0
    for attempt in {event.attempt for event in story.events}:
        events = [event for event in story.events if event.attempt == attempt]
        stretches = intervals(events, events[-1].time)
        total += sum(stretch.seconds for stretch in stretches)
        idle += sum(idle_by_reason(stretches).values())
    return idle / total if total else None


def _row(run: RunFigures) -> list[str]:
    summary = run.summary
    return [
        _END.get(summary.exit_code, f"failed ({summary.exit_code})"),
        f"{summary.wall_s:.0f}",
        str(summary.updates),
        f"{percent(summary.pass_rate_before)} -> {percent(summary.pass_rate_after)}",
        shown(run.tokens_per_s),
        str(summary.role_switches["rollout_to_train"]),
        percent(run.idle_share),
        str(summary.tokens["lost"] + summary.tokens["resampled"]),
    ]


def _parts(name: str) -> list[str]:
    """Digits and the rest in turn, the rest first: so that two names compare like with like."""
    return re.split(r"(\d+)", name)
