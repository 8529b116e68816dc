"""The table of commands: name, what it does, which module carries it out. A command's module has `add(parser)` and `call(args) -> int`.

Exit codes: 0 done, 1 a bug or a failed run, 2 bad input (one line, no traceback).
"""

import argparse
import importlib
import sys

from gyre_hpc.errors import UserError

COMMANDS = {
    "status": "what a run is doing now, and what waits for what",
    "attach": "show a run live, wherever it runs; Ctrl-C leaves it alone",
    "logs": "what the processes of a run print",
    "stop": "end a run in good order",
    "satellite": "let cells of another job, or of this machine, join a running run; they may vanish at any time",
    "debug": "look into a process of a run: stacks, or keep a failed cell",
    "report": "write report.html and summary.json of a run",
    "calls": "the model calls of a run as the journal has them: what was rendered, sampled and sent, and why it branched",
    "preflight": "whether a run could start: folders, ports, clocks, GPUs, versions of each node it would have",
    "cells": "how an allocation is cut into equal cells by kind of device and topology, and what is left over",
    "compare": "put finished or running runs side by side",
    "eval": "evaluate a checkpoint of a run on held-out tasks",
    "harness": "list the agent programs a run can use, install and check them",
    "engine": "list the inference engines a run can use, and make the environments of those that need one",
    "simtest": "drive the machines through seeded faults and check their invariants",
}


def run(argv: list[str]) -> int:
    """Carry out one command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="gyre", description="gyre_hpc: elastic online RL for agents. Start runs with launch.py.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        if name == wanted:
            importlib.import_module(f"gyre_hpc.cli.{name}_command").add(command)
    args = parser.parse_args(argv)
    try:
        code: int = importlib.import_module(f"gyre_hpc.cli.{args.command}_command").call(args)
    except UserError as error:
        from gyre_hpc.report.watch.nearby import where_runs_are

        print(f"gyre {args.command}: {error}{where_runs_are(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    return code
