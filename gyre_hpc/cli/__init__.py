"""Console command `gyre`: one file per command, each imported only when it is called, so that `gyre --help` answers at once."""

import sys

from gyre_hpc.cli.commands import run


def main() -> None:
    """Entry point of the console command."""
    sys.exit(run(sys.argv[1:]))
