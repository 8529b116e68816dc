"""Stand-in for the cell process."""

import sys

from tests.fakes.processes.standin import main

if __name__ == "__main__":
    sys.exit(main())
