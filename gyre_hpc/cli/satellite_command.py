"""gyre satellite --run RUN: cells that join a running run, by a SLURM job or from this machine, and may vanish at any instant."""

import argparse
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gyre_hpc.errors import UserError

if TYPE_CHECKING:
    from gyre_hpc.config.run_folder import RunFolder
    from gyre_hpc.config.schema import Config
    from gyre_hpc.launch.slurm.satellite import Asked

_LOG_TAIL = 4096


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", metavar="RUN", required=True, help="run folder, of a run that is under way")
    parser.add_argument("--nodes", type=int, default=None, help="of the job; default launch.satellite_nodes of the run")
    parser.add_argument("--partition", default="", help="default launch.satellite_partition of the run, or its own")
    parser.add_argument("--time", type=int, default=None, metavar="MINUTES", help="default launch.satellite_time_min of the run")
    parser.add_argument(
        "--cells", type=int, default=0, help="of each node; default: as its GPUs allow, without any as on the run's own nodes"
    )
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="one more sbatch option; again for another")
    parser.add_argument("--dry-run", action="store_true", help="print the sbatch script; submit nothing")
    parser.add_argument("--here", action="store_true", help="join from this machine, without SLURM, until the run is over or Ctrl-C")
    parser.add_argument("--interface", default="", help="with --here: goes before network.interface of the run")
    parser.add_argument("--keep", type=int, default=None, metavar="N", help="submit or cancel until N jobs are asked for; prints JSON")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.config.stored import open_folder
    from gyre_hpc.launch.slurm.satellite import check_joinable

    folder, config = open_folder(args.run, "--run")
    if args.cells < 0:
        raise UserError("--cells", args.cells, "give 1 or more, or leave it out")
    if args.keep is not None:
        return _keep(config, folder, args.keep)
    if args.dry_run:
        return _show(config, folder, args)
    if args.here:
        _check_here(args)
    check_joinable(folder, from_elsewhere=not args.here)
    return _join(folder, args) if args.here else _submit(config, folder, args)


def _check_here(args: argparse.Namespace) -> None:
    """What only a job can have. Raises UserError."""
    of_a_job = {"--nodes": args.nodes, "--partition": args.partition, "--time": args.time, "--option": args.option}
    for option, value in of_a_job.items():
        if value:
            raise UserError(option, value, "it is for a job; with --here this machine alone joins: leave one of them out")


def _submit(config: "Config", folder: "RunFolder", args: argparse.Namespace) -> int:
    from gyre_hpc.launch.slurm.satellite import submit_satellite

    job = submit_satellite(config, folder, _asked(config, args))
    print(f"job: {job}\nits cells join as soon as it begins; see: gyre status {folder.root}\nend it: scancel {job}")
    return 0


def _show(config: "Config", folder: "RunFolder", args: argparse.Namespace) -> int:
    from gyre_hpc.launch.slurm.satellite import request_for
    from gyre_hpc.launch.slurm.sbatch import script

    print(script(request_for(config, folder, _asked(config, args)), folder.jobs))
    return 0


def _join(folder: "RunFolder", args: argparse.Namespace) -> int:
    from gyre_hpc.launch.slurm.satellite import hold
    from gyre_hpc.machines.supervision import STOPPED

    host = socket.gethostname()
    name = f"supervisor-j{''.join(filter(str.isalnum, host))}x{os.getpid()}n0"
    print(f"{name} joins {folder.root}; what it does is in {folder.log(name)}; Ctrl-C ends it", flush=True)
    code = hold(folder, name, args.cells, host, interface=args.interface)
    if code not in (0, STOPPED, -signal.SIGTERM):  # the last one: Ctrl-C before it was ready for one
        print(f"gyre satellite: {name} ended with exit code {code}: {_last_line(folder.log(name))}", file=sys.stderr)
    return code


def _last_line(log: Path) -> str:
    """Where the reason of an end stands."""
    try:
        lines = log.read_bytes()[-_LOG_TAIL:].decode(errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _keep(config: "Config", folder: "RunFolder", wanted: int) -> int:
    import msgspec

    from gyre_hpc.launch.slurm.keeping import keep

    print(msgspec.json.encode(keep(config, folder, wanted)).decode())
    return 0


def _asked(config: "Config", args: argparse.Namespace) -> "Asked":
    from dataclasses import replace

    from gyre_hpc.launch.slurm.satellite import Asked

    usual = Asked.of(config)
    return replace(
        usual,
        nodes=usual.nodes if args.nodes is None else args.nodes,
        partition=args.partition or usual.partition,
        time_min=usual.time_min if args.time is None else args.time,
        cells=args.cells,
        options=dict(_option(one) for one in args.option),
    )


def _option(given: str) -> tuple[str, str]:
    name, _, value = given.partition("=")
    if not name or name.startswith("-"):
        raise UserError("--option", given, "write KEY=VALUE, the name of an sbatch option without its dashes")
    return name, value
