"""What somebody is told who stops watching a run that goes on."""

import sys

from gyre_hpc.config.run_folder import RunFolder


def leave(folder: RunFolder) -> None:
    print(f"the run goes on; see: gyre status {folder.root}", file=sys.stderr)
