"""Exit code of a process that cannot work with what it was given: the supervisor does not start it again, people read why."""

import sys
from collections.abc import Callable

from gyre_hpc.errors import UserError

REFUSED = 2
REFUSAL = "refused: "
"""How the line begins that says why: others may write into the same log after it."""


def refusing(live: Callable[[], object]) -> int:
    """Carry out `live`; 0, or 2 with one line on stderr, a REFUSAL, when it raises UserError."""
    try:
        live()
    except UserError as error:
        print(f"{REFUSAL}{error}", file=sys.stderr, flush=True)
        return REFUSED
    return 0
