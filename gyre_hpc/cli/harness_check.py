"""gyre harness check NAME: the real harness against the real gateway and scripted cells, through disturbances."""

import argparse
from pathlib import Path

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="harness, as `gyre harness list` names it")
    parser.add_argument("--version", default="", help="one of its known versions (default: the pinned one)")
    parser.add_argument("--cache", default="", help="where harnesses are installed (default: paths.cache)")
    parser.add_argument("--scenario", action="append", default=[], metavar="S", help="only this one; may be given again")
    parser.add_argument("--engine", choices=("scripted", "embedded"), default="scripted", help="cells that say, or compute as well")
    parser.add_argument("--record", default="", metavar="DIR", help="write what was sent and answered, one file per harness and version")
    parser.add_argument("--keep", action="store_true", help="leave journal, logs and workspaces, and say where")


def call(args: argparse.Namespace) -> int:
    from gyre_hpc.config.place import cache_folder
    from gyre_hpc.config.schema import Config, PathsConfig
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
    cache = cache_folder(Config(paths=PathsConfig(cache=args.cache)))
    folder = installed_folder(cache, harness, args.version or harness.version)
    if not is_installed(folder):
        version = f" --version {args.version}" if args.version else ""
        raise UserError("NAME", args.name, f"it is not in {folder}; gyre harness install {args.name}{version}")
    rehearsal = Rehearsal(harness=args.name, folder=Path(), version=args.version, cache=args.cache, engine=args.engine, keep=args.keep)
    record = Path(args.record).expanduser() if args.record else None
    if record is not None and not record.is_dir():
        raise UserError("--record", args.record, "name a folder that exists")
    return main(rehearsal, scenarios, record=record)
