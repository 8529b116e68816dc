"""What moving costs: python -m benchmarks.cells [--quick]. Run it in the repository's folder.

Prints tables; the last line is one JSON object. See benchmarks/README.md for what each figure means.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cells import migration, switches
from benchmarks.cells.figures import Figures
from benchmarks.cells.peers import CHUNK_BYTES, PAGE_BYTES, peer
from benchmarks.cells.transfer import SIZE, Blocks, Snapshots, Way, measure, stream_way, table
from gyre_hpc.config.schema import TransportConfig
from gyre_hpc.errors import UserError
from gyre_hpc.transport.mooncake_needs import check_mooncake

PARTS = ("transfer", "migration", "switches")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cells", description="What moving snapshots, KV and cells costs.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, one short run; within 5 minutes")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help="which to run, comma-separated (default: %(default)s)")
    given = parser.parse_args()
    parts, begin, load = given.only.split(","), time.perf_counter(), os.getloadavg()
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"--only={given.only}: no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    figures, kind = Figures(), TransportConfig().kv
    with tempfile.TemporaryDirectory(prefix="gyre-cells-") as name:
        folder = Path(name)
        if "transfer" in parts:
            _transfer(figures, kind, 5 if given.quick else 15)
        if "migration" in parts:
            moved = migration.measure(folder / "migration", 2 if given.quick else 5, kind)
            figures.put("kv_migration_vs_reprefill_4k", moved.ratio)
            print(f"\n{moved.table()}", flush=True)
        if "switches" in parts:
            _switches(figures, switches.measure(folder, given.quick))
    facts = {
        "benchmark": "cells",
        "quick": given.quick,
        **figures.values,
        "missed": figures.missed(),
        "kv": kind,
        "cores": os.cpu_count(),
        "load_before_after": [[round(value, 2) for value in values] for values in (load, os.getloadavg())],
        "wall_s": round(time.perf_counter() - begin, 1),
    }
    print(f"\n{figures.table()}\n{json.dumps(facts)}")


def _transfer(figures: Figures, default: str, rounds: int) -> None:
    kinds = ["tcp", "c10d"]
    try:
        check_mooncake()
        kinds.append("mooncake")
    except UserError as error:
        print(f"mooncake is left out: {error}")
    with ExitStack() as open_peers:
        yardstick = stream_way(open_peers.enter_context(peer("stream", SIZE)))
        snapshots = Snapshots(open_peers.enter_context(peer("snapshot", SIZE)))
        ways = [yardstick, Way("snapshot", snapshots.pull, snapshots.prepare)]
        ways += [Way(f"kv {kind}", Blocks(kind, open_peers.enter_context(peer(kind, SIZE))).move) for kind in kinds]
        measure(ways, rounds)
    print(f"{SIZE >> 20} MiB; chunks of {CHUNK_BYTES >> 10} KiB, pages of {PAGE_BYTES >> 10} KiB\n{table(ways)}", flush=True)
    share = {way.name: way.gb_per_s / yardstick.gb_per_s for way in ways}
    figures.put("snapshot_share_of_loopback", share["snapshot"])
    figures.put("kv_share_of_loopback", share[f"kv {default}"])
    for kind in kinds:
        figures.put(f"kv_share_of_loopback_{kind}", share[f"kv {kind}"])


def _switches(figures: Figures, found: switches.Switches) -> None:
    print(f"\n{found.table()}", flush=True)
    for direction in switches.DIRECTIONS:
        figures.put_seconds(f"switch_s_{direction}", found.totals(direction))
    figures.put("switch_share_of_wall", found.share_of_wall())
    figures.put("switches", found.count)


if __name__ == "__main__":
    main()
