"""gyre status RUN [--json] [--follow]: what the run does now, and what waits for what."""

import argparse
import sys

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print status.json as it is")
    how.add_argument("--follow", action="store_true", help="go on until the run has finished or Ctrl-C")


def call(args: argparse.Namespace) -> int:
    from rich.console import Console

    from gyre_hpc.observability.attempt_record import notes_on_attempts
    from gyre_hpc.observability.status import read_status
    from gyre_hpc.report.screen import screen
    from gyre_hpc.report.story import is_over, read_story
    from gyre_hpc.report.view import follow, make_view

    folder = read_story(args.run).folder
    if args.follow:
        with make_view() as view:
            follow(folder, lambda: is_over(folder), view)
        return 0
    status = read_status(folder.status)
    if status is None:
        raise UserError("RUN", args.run, "its controller has not written status.json yet; try again in some seconds")
    if args.json:
        sys.stdout.write(folder.status.read_text() + "\n")
    else:
        Console().print(screen(status, []))
        for line in notes_on_attempts(folder):
            print(line)
    return 0
