"""Commands that have actions, `gyre NOUN ACTION`: one file per action, gyre_hpc/cli/<noun>_<action>.py."""

import argparse
import importlib
from collections.abc import Mapping


def add_actions(parser: argparse.ArgumentParser, noun: str, actions: Mapping[str, str]) -> None:
    """actions: name -> what it does, in a line."""
    added = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in actions.items():
        action = added.add_parser(name, help=help_text, description=help_text)
        importlib.import_module(f"gyre_hpc.cli.{noun}_{name}").add(action)


def call_action(noun: str, args: argparse.Namespace) -> int:
    code: int = importlib.import_module(f"gyre_hpc.cli.{noun}_{args.action}").call(args)
    return code
