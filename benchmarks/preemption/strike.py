"""Taking a run away at a drawn moment, and what its engines had sampled by then."""

import contextlib
import os
import signal
import time

from benchmarks.chaos.disturbed import DisturbedRun
from benchmarks.preemption.engines import Engines

_LOOK_S = 0.05
_END_S = 60.0


def await_moment(run: DisturbedRun, attempt: int, after_s: float, within_s: float) -> bool:
    """Until `after_s` after the first newly sampled token of this attempt; False: the run was over before. Raises TimeoutError."""
    begun, since = time.monotonic(), None
    while run.exit_code is None:
        _look(run, begun, within_s)
        if since is None and attempt in run.sampled_in:
            since = time.monotonic()
        if since is not None and time.monotonic() - since >= after_s:
            return True
    return False


def await_end(run: DisturbedRun, within_s: float) -> int:
    """Exit code. Raises TimeoutError."""
    begun = time.monotonic()
    while run.exit_code is None:
        _look(run, begun, within_s)
    return run.exit_code


def _look(run: DisturbedRun, begun: float, within_s: float) -> None:
    time.sleep(_LOOK_S)
    run.look()
    if time.monotonic() - begun > within_s:
        raise TimeoutError(f"nothing more to see after {within_s:.0f} s:\n{run.out.read_text()}")


def take_away(run: DisturbedRun, kind: str) -> int | None:
    """End all of it in one of the ways of plan.KINDS. Tokens that its engines had sampled; None: they noted it themselves."""
    if kind == "kill":
        return _kill(run)
    for pid in run.family.look() if kind == "terminate" else [run.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    begun = time.monotonic()
    while run.family.look() - {run.pid} or run.exit_code is None:
        if time.monotonic() - begun > _END_S:
            raise TimeoutError(f"not over {_END_S:.0f} s after SIGTERM:\n{run.out.read_text()}")
        time.sleep(_LOOK_S)
    return None


def _kill(run: DisturbedRun) -> int:
    """The shards first stand still, then engines are asked, then all is killed: what an engine samples in between counts as lost."""
    cells = run.pids("cell-")
    engines = Engines(run.folder.token.read_text().strip(), cells)
    if len(engines) != len(cells):
        raise RuntimeError(f"{len(engines)} engines were found by the ports of {len(cells)} cells")
    for pid in run.pids("gateway-"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    sampled = engines.sampled()
    run.family.end()
    run.family.end()  # those that a dying parent had just begun
    return sampled
