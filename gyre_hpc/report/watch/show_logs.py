"""Lines of logs on the screen, with the process before each."""

import sys
import time
from collections.abc import Iterable

from gyre_hpc.clock import monotonic_s
from gyre_hpc.report.watch.log_tail import LogTail
from gyre_hpc.report.watch.state import FINAL
from gyre_hpc.report.watch.watched import Run, watch

_LOOK_EVERY_S = 0.3
_JUDGE_EVERY_S = 3.0


def show(lines: Iterable[tuple[str, str]]) -> bool:
    """Print them; whether there were any."""
    is_any = False
    for process, line in lines:
        is_any = True
        print(f"{process} | {line}")
    sys.stdout.flush()
    return is_any


def follow(run: Run, tail: LogTail) -> None:
    """Until nothing follows any more."""
    judged = monotonic_s()
    is_final = watch(run, patient=False).verdict.state in FINAL
    while True:
        show(tail.poll())
        if is_final:
            break
        time.sleep(_LOOK_EVERY_S)
        if monotonic_s() - judged >= _JUDGE_EVERY_S:
            judged, is_final = monotonic_s(), watch(run, patient=False).verdict.state in FINAL
    show(tail.rest())
