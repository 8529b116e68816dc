"""gyre eval RUN: held-out tasks on one checkpoint of a run, with the real gateway, harness and cells, and nothing else live."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--checkpoint", default="", help="<lineage>.<step> below checkpoints/ (default: the newest whole one)")
    parser.add_argument("--tasks", type=int, default=0, help="how many held-out tasks (default: evaluation.tasks of the run)")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.launch.evaluate import main

    return main(run=args.run, checkpoint=args.checkpoint, tasks=args.tasks)
