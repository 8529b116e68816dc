"""What a launcher says. A reader or terminal that is gone never ends a run: all is in the run folder."""

import contextlib
import os
import sys
from typing import TextIO


def tell(line: str, stream: TextIO | None = None) -> None:
    """Print a line. A reader or terminal that is gone never ends a run: all is in the run folder."""
    try:
        print(line, file=stream or sys.stdout, flush=True)
    except OSError:
        fall_silent()


def fall_silent() -> None:
    """Nobody reads our output any more (`| head`, a closed terminal): from now on it goes nowhere, which cannot fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # closed before we began
            continue
        with contextlib.suppress(OSError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError):  # one that is no file
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
