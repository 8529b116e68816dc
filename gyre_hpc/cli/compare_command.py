"""gyre compare SWEEP | RUN RUN ...: a line per run with what it alone was told and its figures; --full: all numbers, differences first.

The folder of a sweep stands for its runs.
"""

import argparse

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="SWEEP|RUN", nargs="+", help="the folder of a sweep, or run folders, two or more")
    parser.add_argument("--full", action="store_true", help="every number of every run too")
    parser.add_argument("--json", action="store_true", help="print a JSON object: run -> summary, with told, tokens_per_s, idle_share")


def call(args: argparse.Namespace) -> int:
    import msgspec

    from gyre_hpc.report.compare import changes_apart, compare
    from gyre_hpc.report.figures import figures, runs_in, table
    from gyre_hpc.report.story import read_story

    runs = [run for given in args.runs for run in runs_in(given)]
    if len(runs) < 2:
        raise UserError("RUN", args.runs[0], "name two runs or more to compare, or the folder of a sweep")
    stories = [read_story(run) for run in runs]
    is_sweep = runs != args.runs
    folders = [story.folder.root for story in stories]
    is_short = is_sweep and len({folder.name for folder in folders}) == len(folders)
    names = [folder.name if is_short else f"{folder.parent.name}/{folder.name}" for folder in folders]
    found = figures(list(zip(names, stories, strict=True)))
    if args.json:
        both = {run.name: {**msgspec.to_builtins(run.summary), **_beside(run)} for run in found}
        print(msgspec.json.encode(both).decode())
        return 0
    summaries = [(run.name, run.summary) for run in found]
    print(table(found))
    if args.full:
        print("\n" + compare(summaries))
    elif apart := changes_apart(summaries):
        print("\n" + "\n".join(apart))
    return 0


def _beside(run: object) -> dict[str, object]:
    return {name: getattr(run, name) for name in ("told", "tokens_per_s", "idle_share")}
