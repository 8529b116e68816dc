"""`python -m gyre_hpc.processes.scorer --run FOLDER`: started by the runner, scores workspaces one after the other.

A process of its own: what an agent left behind may hang whoever looks at it, and a thread cannot be killed.
"""

import argparse
import sys
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.runner.scoring import answer
from gyre_hpc.shell.lifetime import die_with_born_parent
from gyre_hpc.suites import create_suite


def main() -> None:
    """Until stdin closes."""
    die_with_born_parent()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    config = load_config(RunFolder(parser.parse_args().run).config)
    suite = create_suite(config.suite, config.seed)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(answer(suite, line) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
