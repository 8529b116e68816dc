"""gyre preflight [RUN] [KEY=VALUE …]: whether a run could start where it would run: a line per node, and what must be put right.

Takes what launch.py takes. With cluster.kind=slurm it asks nodes like those of the run by a short job; else this machine.
"""

import argparse
from pathlib import Path

from gyre_hpc.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="RUN|KEY=VALUE", nargs="*", help="a run folder to go on with, and overrides as launch.py takes them"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: probes (of the nodes, by place) and troubles")


def call(args: argparse.Namespace) -> int:
    import msgspec

    from gyre_hpc.config.compose import compose_config
    from gyre_hpc.config.schema import ClusterKind
    from gyre_hpc.launch.preflight.gather import ask
    from gyre_hpc.launch.preflight.table import table
    from gyre_hpc.launch.surroundings import check_surroundings

    runs = [word for word in args.words if "=" not in word and not word.startswith(("+", "~"))]
    if len(runs) > 1:
        raise UserError("RUN", runs[1], "name one run folder; overrides are KEY=VALUE")
    overrides = [word for word in args.words if word not in runs]
    config = compose_config([*(f"resume={Path(run).resolve()}" for run in runs), *overrides])
    verdict, hosts = ask(config, Path(config.resume) if config.resume else None)
    print(msgspec.json.encode(verdict).decode() if args.json else table(verdict, hosts))
    if config.cluster.kind is ClusterKind.local:
        check_surroundings(config)  # what launch.py asks at its door: it says one thing at a time
    return 2 if verdict.refusals else 0
