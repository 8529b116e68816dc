"""gyre logs RUN [-f] [--cell N | --process NAME] [--lines N]: what the processes print, each line with its process before it."""

import argparse
import sys


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is written from now, until the run is over or Ctrl-C")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--cell", type=int, metavar="N", help="only this cell: its agent, ranks and server")
    which.add_argument("--process", default="", metavar="NAME", help="only this one: controller, gateway-0, runner-0, supervisor-0 ...")
    parser.add_argument("--lines", type=int, default=20, metavar="N", help="newest lines of each process to begin with (default 20)")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.errors import UserError
    from gyre_hpc.protocol.process_names import in_short
    from gyre_hpc.report.watch.log_tail import LogTail, wanted_by
    from gyre_hpc.report.watch.show_logs import follow, show
    from gyre_hpc.report.watch.watched import open_run

    if args.lines < 0:
        raise UserError("--lines", args.lines, "give 0 or more")
    run = open_run(args.run)
    tail = LogTail(run.folder.root / "logs", wanted_by(args.cell, args.process))
    is_any = show(tail.last(args.lines))
    if args.follow:
        if not is_any:
            print("nothing printed so far; waiting for lines. How the run goes: gyre attach", args.run, file=sys.stderr)
        follow(run, tail)
        return 0
    is_any |= show(tail.rest())
    if not is_any and tail.names:
        print(f"nothing printed so far by: {', '.join(sorted(tail.names))}", file=sys.stderr)
    if not is_any and not tail.names:
        name = args.process or (f"cell-{args.cell}" if args.cell is not None else "any process")
        others = in_short(LogTail(run.folder.root / "logs").names)
        raise UserError("RUN", args.run, f"holds no log of {name}" + (f"; it has those of {others}" if others else ""))
    return 0
