"""gyre harness ACTION: agent programs that runs can use. One file per action: gyre_hpc/cli/harness_<action>.py."""

import argparse

from gyre_hpc.cli.actions import add_actions, call_action

ACTIONS = {
    "list": "what there is, and what of it is installed",
    "install": "fetch one into the cache",
    "check": "let one work against gateway and scripted cells, through disturbances, and print a table",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, "harness", ACTIONS)


def call(args: argparse.Namespace) -> int:
    return call_action("harness", args)
