"""gyre engine ACTION: inference engines that live in an environment of their own. One file per action: gyre_hpc/cli/engine_<action>.py."""

import argparse
import importlib

ACTIONS = {
    "list": "what there is, what of it is installed, and where",
    "install": "make the environment of one in the cache",
}


def add(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in ACTIONS.items():
        action = actions.add_parser(name, help=help_text, description=help_text)
        importlib.import_module(f"gyre_hpc.cli.engine_{name}").add(action)


def call(args: argparse.Namespace) -> int:
    code: int = importlib.import_module(f"gyre_hpc.cli.engine_{args.action}").call(args)
    return code
