"""gyre report RUN: write report.html and summary.json anew from the files of the run."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.report.html import write_report
    from gyre_hpc.report.story import read_story
    from gyre_hpc.report.summary import closing_line, write_summary

    story = read_story(args.run)
    write_report(story)
    print(closing_line(write_summary(story), story.folder.report))
    return 0
