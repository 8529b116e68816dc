"""gyre engine ACTION: inference engines that live in an environment of their own. One file per action: gyre_hpc/cli/engine_<action>.py."""

import argparse

from gyre_hpc.cli.actions import add_actions, call_action

ACTIONS = {
    "list": "what there is, what of it is installed, and where",
    "install": "make the environment of one in the cache",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, "engine", ACTIONS)


def call(args: argparse.Namespace) -> int:
    return call_action("engine", args)
