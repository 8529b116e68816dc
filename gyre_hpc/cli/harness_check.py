"""gyre harness check NAME: the real harness against the real gateway and scripted cells, through disturbances."""

import argparse
from pathlib import Path

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="harness, as `gyre harness list` names it")
    parser.add_argument("--version", default="", metavar="V", help="one of `gyre harness list` (default: the one that gyre_hpc pins)")
    parser.add_argument("--cache", default="", metavar="DIR", help="folder of installed harnesses (default: that of paths.cache)")
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        metavar="S",
        help="only this one; may be given again; a name that does not exist shows them all",
    )
    parser.add_argument(
        "--engine",
        choices=("scripted", "embedded"),
        default="scripted",
        help="what the cells do with the script: say it (default), or also compute it with a small model on the CPU",
    )
    parser.add_argument("--record", default="", metavar="DIR", help="write what was sent and answered, one file per harness and version")
    parser.add_argument("--keep", action="store_true", help="leave journal, logs and workspaces, and say where")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.config.place import cache_of_command
    from gyre_hpc.harnesses import create_harness
    from gyre_hpc.harnesses.place import installed_folder
    from gyre_hpc.launch.harness_install import is_installed
    from gyre_hpc.rehearsal.check import main
    from gyre_hpc.rehearsal.company import Rehearsal
    from gyre_hpc.rehearsal.dialects import dialect_of
    from gyre_hpc.rehearsal.scenarios import SCENARIOS, scenario_named

    scenarios = [scenario_named(name) for name in dict.fromkeys(args.scenario)] or SCENARIOS
    harness = create_harness(args.name)
    dialect_of(args.name)
    cache = cache_of_command(args.cache)
    folder = installed_folder(cache, harness, args.version or harness.version)
    if not is_installed(folder):
        which = (f" --version {args.version}" if args.version else "") + (f" --cache {args.cache}" if args.cache else "")
        raise UserError("NAME", args.name, f"not installed ({folder} is not there); run: gyre harness install {args.name}{which}")
    rehearsal = Rehearsal(harness=args.name, folder=Path(), version=args.version, cache=args.cache, engine=args.engine, keep=args.keep)
    record = Path(args.record).expanduser() if args.record else None
    if record is not None and not record.is_dir():
        raise UserError("--record", args.record, "name a folder that exists")
    return main(rehearsal, scenarios, record=record)
