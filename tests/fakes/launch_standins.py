"""`python -m tests.fakes.launch_standins CONFIG_YAML`: launch with stand-in processes."""

import sys
from pathlib import Path

from gyre_hpc.config.stored import load_config
from gyre_hpc.launch.local import main

if __name__ == "__main__":
    sys.exit(main(load_config(Path(sys.argv[1])), modules="tests.fakes.processes"))
