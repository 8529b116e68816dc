"""What many cells and long runs cost: python -m benchmarks.scale [--quick] [--part PART ...]. Run it in the repository's folder.

Prints a table for each part; the last line is one JSON object. See benchmarks/README.md for what each figure means.
"""

import argparse
import importlib
import os
import time

from benchmarks.scale.figures import Figure, last_line, table

PARTS = ("cells", "torchrun", "idle", "resume", "soak")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="What many cells and long runs cost.")
    parser.add_argument("--quick", action="store_true", help="within 5 minutes")
    parser.add_argument("--part", action="append", choices=PARTS, help="which to measure, several times (default: all)")
    given = parser.parse_args()
    begin, load, figures = time.perf_counter(), os.getloadavg(), list[Figure]()
    for part in given.part or PARTS:
        found = importlib.import_module(f"benchmarks.scale.{part}").measure(given.quick)
        print(f"{table(part, found)}\n", flush=True)
        figures += found
    facts = {
        "benchmark": "scale",
        "quick": given.quick,
        "cores": os.cpu_count(),
        "load_before_after": [[round(value, 2) for value in values] for values in (load, os.getloadavg())],
        "wall_s": round(time.perf_counter() - begin, 1),
    }
    print(last_line(figures, facts))


if __name__ == "__main__":
    main()
