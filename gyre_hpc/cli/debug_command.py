"""gyre debug RUN (--cell N | --process NAME) (--stacks | --py-spy | --hold | --release): look into a process that does not do its work."""

import argparse

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cell", type=int, metavar="N", help="this cell, all its processes")
    which.add_argument("--process", default="", metavar="NAME", help="controller, gateway-0, runner-0 ...")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stacks", action="store_true", help="have it write the Python stacks of all its threads, and print them (default)")
    what.add_argument("--py-spy", action="store_true", help="stacks seen from outside by py-spy, for a process that answers nothing")
    what.add_argument("--hold", action="store_true", help="neither end nor start this cell again, whatever the controller orders")
    what.add_argument("--release", action="store_true", help="end a hold")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.protocol.people import CommandKind
    from gyre_hpc.protocol.process_names import in_short
    from gyre_hpc.report.watch.debug import hold, processes_of, py_spy, stacks
    from gyre_hpc.report.watch.watched import open_run

    run = open_run(args.run)
    if args.more or not (args.process or args.cell is not None):
        there = in_short(processes_of(run))
        raise UserError("--process", " ".join(args.more), f"name one, as in --process controller, or --cell N; there are {there}")
    process = args.process or f"cell-{args.cell}"
    if args.py_spy:
        return py_spy(run, process)
    if args.hold or args.release:
        return hold(run, process, CommandKind.hold if args.hold else CommandKind.release)
    return stacks(run, process)
