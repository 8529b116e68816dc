"""gyre simtest: the machines under a seeded schedule of faults, invariants checked after every event."""

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0); with --seeds 1 a single one is replayed")
    parser.add_argument("--verbose", action="store_true", help="print the schedule of every seed, not only of failing ones")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.simulation.simtest import main

    return main(seeds=args.seeds, first=args.first, verbose=args.verbose)
