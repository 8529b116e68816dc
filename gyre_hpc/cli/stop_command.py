"""gyre stop RUN [--wait]: end a run in good order, from anywhere that sees its folder. No job of it follows by itself."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--wait", action="store_true", help="stay until every process has ended")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.report.watch.stop import stop
    from gyre_hpc.report.watch.watched import open_run

    return stop(open_run(args.run), wait=args.wait)
