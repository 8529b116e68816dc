"""gyre simtest: the machines under a seeded schedule of faults, invariants checked after every event."""

import argparse

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (default 200)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--seed", type=int, help="this seed alone, with its schedule")
    parser.add_argument("--trace", action="store_true", help="with --seed: every input and effect of every process")
    parser.add_argument("--verbose", action="store_true", help="print the schedule of every seed, not only of failing ones")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.simulation.simtest import main

    if args.seeds < 1:
        raise UserError("--seeds", args.seeds, "give 1 or more")
    if args.seed is not None:
        return main(seeds=1, first=args.seed, verbose=True, trace=args.trace)
    return main(seeds=args.seeds, first=args.first, verbose=args.verbose)
