"""gyre harness ACTION: agent programs that runs can use. One file per action: gyre_hpc/cli/harness_<action>.py."""

import argparse
import importlib

ACTIONS = {
    "list": "what there is, and what of it is installed",
    "install": "fetch one into the cache",
    "check": "let one work against gateway and scripted cells, through disturbances, and print a table",
}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in ACTIONS.items():
        action = actions.add_parser(name, help=help_text, description=help_text)
        importlib.import_module(f"gyre_hpc.cli.harness_{name}").add(action)


def call(args: argparse.Namespace) -> int:
    code: int = importlib.import_module(f"gyre_hpc.cli.harness_{args.action}").call(args)
    return code
