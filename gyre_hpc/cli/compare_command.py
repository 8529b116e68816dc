"""gyre compare RUN RUN ...: their summaries side by side, differences first."""

import argparse

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders, two or more")
    parser.add_argument("--json", action="store_true", help="print a JSON object: run -> summary")


def call(args: argparse.Namespace) -> int:
    import msgspec

    from gyre_hpc.report.compare import compare
    from gyre_hpc.report.story import read_story
    from gyre_hpc.report.summary import summarize

    if len(args.runs) < 2:
        raise UserError("RUN", args.runs[0], "name two runs or more to compare")
    stories = [read_story(run) for run in args.runs]
    named = [(f"{story.folder.root.parent.name}/{story.folder.root.name}", summarize(story)) for story in stories]
    print(msgspec.json.encode(dict(named)).decode() if args.json else compare(named))
    return 0
