"""gyre eval RUN: held-out tasks on one checkpoint of a run, with the real gateway, harness and cells, and nothing else live."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("--checkpoint", default="", help="<lineage>.<step> below checkpoints/ (default: the newest whole one)")
    parser.add_argument("--tasks", type=int, help="how many held-out tasks (default: evaluation.tasks of the run)")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.errors import UserError
    from gyre_hpc.launch.evaluate import main

    if args.tasks is not None and args.tasks < 1:
        raise UserError("--tasks", args.tasks, "give 1 or more, or leave it out for as many as the run evaluates on")
    return main(run=args.run, checkpoint=args.checkpoint, tasks=args.tasks or 0)
