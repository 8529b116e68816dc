"""Runs everything; prints tables, every goal beside its figure, and as the last line one JSON object.

One core for the proxy under test (each in a process of its own, one at a time under load), another for client and stub.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gateway import journal_size, lag, live, turns
from benchmarks.gateway.chat_setup import make_plan
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.processes import Process, cores
from benchmarks.gateway.speed import CASES, Speed
from benchmarks.gateway.targets import LITELLM, Floor, GyreGateway, LiteLlm, PassThrough, Stub, Target, close_all
from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError

PARTS = ("speed", "live", "lag", "tokens", "journal")
ROUNDS, WINDOW_S = 5, 2.0
QUICK_ROUNDS, QUICK_WINDOW_S = 3, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description="What the gateway costs.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter windows; within 5 minutes")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help="which to run, comma-separated (default: %(default)s)")
    parser.add_argument("--without-litellm", action="store_true", help="do not install or start LiteLLM; its ratios are null")
    parser.add_argument("--tokenizer", default="", metavar="DIR", help="Hugging Face folder with a chat template; default: one made here")
    given = parser.parse_args()
    parts, begin = given.only.split(","), time.perf_counter()
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"--only={given.only}: no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    figures, proxy_core, client_core = Figures(), *cores()
    os.sched_setaffinity(0, {client_core})
    folder = Path(tempfile.mkdtemp(prefix="gyre-gateway-"))
    load_before = os.getloadavg()
    try:
        try:
            plan = make_plan(given.tokenizer, cache_folder(Config()))
        except UserError as error:
            parser.error(f"--tokenizer={given.tokenizer}: {error}")
        stub = Stub(plan, folder, client_core)
        opened: list[Process | None] = [stub.process]
        try:
            if "speed" in parts:
                _speed(given, figures, plan, stub, folder, proxy_core)
            if "live" in parts:
                gateway = GyreGateway(stub, plan, folder / "live", proxy_core)
                opened.append(gateway.process)
                live.measure(gateway, stub, figures)
                close_all([gateway.process])
            if "lag" in parts:
                gateway = GyreGateway(stub, plan, folder / "lag", proxy_core, keepalive_s=lag.KEEPALIVE_S, progress_tokens=1)
                bare = PassThrough(stub, folder, proxy_core)
                opened += [gateway.process, bare.process]
                lag.measure(gateway, bare, stub, figures)
            if "tokens" in parts:
                turns.measure(stub, plan, folder, proxy_core, figures)
            if "journal" in parts:
                journal_size.measure(stub, plan, folder, proxy_core, figures)
        finally:
            close_all(opened)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts = {
        "benchmark": "gateway",
        "quick": given.quick,
        **figures.values,
        "missed": figures.missed(),
        "reasons": figures.reasons,
        "client": "own (asyncio, every request made anew)",
        "tokenizer": plan.describe,
        "machine": machine(proxy_core, client_core),
        "load_before_after": [[round(value, 2) for value in values] for values in (load_before, os.getloadavg())],
        "wall_s": round(time.perf_counter() - begin, 1),
    }
    print(f"\n{figures.table()}\n{json.dumps(facts)}")


def _speed(given: argparse.Namespace, figures: Figures, plan, stub, folder: Path, core: int) -> None:  # type: ignore[no-untyped-def]
    targets: list[Target] = [Floor(stub)]
    missing = ""
    try:
        targets += [PassThrough(stub, folder, core), GyreGateway(stub, plan, folder / "run", core)]
        targets.append(GyreGateway(stub, plan, folder / "run-without-fsync", core, fsync=False))
        if given.without_litellm:
            missing = "not asked for"
        else:
            try:
                targets.append(LiteLlm(stub, folder, core, cache_folder(Config())))
            except (RuntimeError, OSError) as error:
                missing = f"{LITELLM} could not be started: {error}"
        speed = Speed(targets, plan)
        rounds, seconds = (QUICK_ROUNDS, QUICK_WINDOW_S) if given.quick else (ROUNDS, WINDOW_S)
        speed.run(rounds, seconds, lambda text: print(f"{text}; load {os.getloadavg()[0]:.1f}", flush=True))
        for case in CASES:
            print(speed.table(case))
        speed.tell(figures, missing)
        figures.put("fdatasync_ms_p50", fdatasync_ms(folder))
    finally:
        close_all(target.process for target in targets)


def fdatasync_ms(folder: Path) -> float:
    """Median of appending 1.5 kB and waiting for the disk, as the journal does for a short call."""
    taken = []
    with open(folder / "fdatasync", "wb", buffering=0) as file:
        for _ in range(100):
            begin = time.perf_counter()
            file.write(b"x" * 1500)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(taken)


def machine(proxy_core: int, client_core: int) -> dict[str, object]:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "proxy_core": proxy_core,
        "client_core": client_core,
        "python": sys.version.split()[0],
        "system": platform.system(),
    }


if __name__ == "__main__":
    main()
