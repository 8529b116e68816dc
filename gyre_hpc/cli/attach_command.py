"""gyre attach RUN: the live view, from anywhere that sees the run folder. Ctrl-C leaves the run alone."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.report.watch.attach import attach
    from gyre_hpc.report.watch.watched import open_run

    return attach(open_run(args.run))
