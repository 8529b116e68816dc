"""gyre status RUN [--json] [--follow]: whether the run lives, what it does now, what waits for what, and how far its allocation takes it."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print status.json, and beside it what was found of the run's life and job")
    how.add_argument("--follow", action="store_true", help="as gyre attach")


def call(args: argparse.Namespace) -> int:
    import msgspec
    from rich.console import Console

    from gyre_hpc.observability.attempt_record import notes_on_attempts
    from gyre_hpc.report.replay import replay_line
    from gyre_hpc.report.screen import screen
    from gyre_hpc.report.watch.attach import attach
    from gyre_hpc.report.watch.state import FINAL, RunState
    from gyre_hpc.report.watch.watched import as_json, job_lines, open_run, watch

    run = open_run(args.run)
    if args.follow:
        return attach(run)
    watched = watch(run)
    if args.json:
        print(msgspec.json.encode(as_json(watched)).decode())
        return 0
    print(f"{watched.verdict.state.value.replace('_', ' ')}: {watched.verdict.text}")
    for line in job_lines(watched):
        print(line)
    if watched.status is not None:
        is_over = watched.verdict.state in (*FINAL, RunState.requeued, RunState.ended)
        Console().print(screen(watched.status, [], is_over=is_over))
        if line := replay_line(watched.status.totals):
            print(line)
    for line in notes_on_attempts(run.folder):
        print(line)
    return 0
