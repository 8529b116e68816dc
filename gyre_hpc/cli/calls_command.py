"""gyre calls RUN: what the journal holds of its model calls; with --call everything about one of them."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder, of a live or a finished run")
    parser.add_argument("--execution", metavar="E", default="", help="only calls of this execution")
    parser.add_argument("--call", metavar="C", default="", help="one call in full, <execution>/<number>")
    parser.add_argument("--json", action="store_true", help="print a JSON object per call and line; with --call, one with its tokens")


def call(args: argparse.Namespace) -> int:
    import msgspec

    from gyre_hpc.report.calls import read_calls, reader_of, table
    from gyre_hpc.report.one_call import describe, shown

    calls = read_calls(args.run, execution=args.execution or args.call.rpartition("/")[0], call=args.call)
    if args.call:
        one = shown(calls[args.call], reader_of(args.run))
        print(msgspec.json.encode(one).decode() if args.json else describe(one))
    elif args.json:
        for pieces in calls.values():
            print(msgspec.json.encode(pieces.row).decode())
    else:
        print(table([pieces.row for pieces in calls.values()]))
    return 0
