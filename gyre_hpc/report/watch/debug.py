"""Looks into a process of a live run."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.people import Answer, CommandKind, Wish
from gyre_hpc.report.watch.ordering import ANSWER_S, answer_to, give, who
from gyre_hpc.report.watch.places import Place, is_of_run, known_processes, places_of
from gyre_hpc.report.watch.state import FINAL
from gyre_hpc.report.watch.watched import Run, watch
from gyre_hpc.supervisor.attempts import highest_attempt

STACKS_S = 15.0
"""From the answer on: a process on another node hears of it within some seconds."""
_QUIET_S = 0.6
_LOOK_EVERY_S = 0.1
_PY_SPY_S = 60.0


def stacks(run: Run, process: str) -> int:
    """Have the stacks written and print them. Exit code 1: not all that should have did."""
    before = {path: path.stat().st_size for path in (run.folder.root / "logs").glob("*.stacks")}
    answer = _order(run, CommandKind.stacks, process)
    print(answer.text, flush=True)
    files = sorted(run.folder.root.glob(answer.files))
    written = _grown(files, before)
    for path in files:
        text = (
            _from(path, before.get(path, 0)) if path in written else "wrote nothing: it is stopped, or has no handler for the signal yet\n"
        )
        print(f"\n=== {path.relative_to(run.folder.root)}\n{text}", end="")
    if not files:
        print("it writes no stacks: it is not that far yet, or the folder took no file", file=sys.stderr)
    return 0 if files and len(written) == len(files) else 1


def processes_of(run: Run) -> list[str]:
    """Of its newest attempt."""
    return known_processes(run.folder, run.config, highest_attempt(run.folder.attempts))


def hold(run: Run, process: str, kind: CommandKind) -> int:
    """Hold a cell, or release it."""
    print(_order(run, kind, process).text)
    return 0


def py_spy(run: Run, process: str) -> int:
    """Dump the processes that are here; for the others print the line that does it there."""
    watched = watch(run)
    job = watched.signs.start.job if watched.signs.start is not None else ""
    places = places_of(run.folder, watched.signs.attempt, watched.status, process)
    here = socket.gethostname().partition(".")[0]
    code = 0
    for place in places:
        if place.host.partition(".")[0] != here:
            print(_elsewhere(place, job))
        elif not is_of_run(place.pid, run.folder):
            print(f"process {place.pid} of {place.name} is gone", file=sys.stderr)
            code = 1
        else:
            code = max(code, _dump(place))
    return code


def _order(run: Run, kind: CommandKind, process: str) -> Answer:
    """Raises UserError when it was not carried out."""
    watched = watch(run)
    if watched.verdict.state in FINAL or not watched.signs.attempt:
        raise UserError("RUN", str(run.folder.root), f"nothing of it runs: {watched.verdict.text}")
    wish = Wish(kind, watched.signs.attempt, process, f"gyre debug by {who()}")
    answer = answer_to(run.folder, give(run.folder, wish, signs=watched.signs, token=run.token))
    if answer is None:
        raise UserError("RUN", str(run.folder.root), f"its supervisor did not answer within {ANSWER_S:g} s: {watch(run).verdict.text}")
    if not answer.is_done:
        raise UserError("--process", process, answer.text)
    return answer


def _grown(files: list[Path], before: dict[Path, int]) -> set[Path]:
    """Those that got something and are quiet since."""
    limit = monotonic_s() + STACKS_S
    sizes: dict[Path, tuple[int, float]] = {path: (before.get(path, 0), limit) for path in files}
    while monotonic_s() < limit:
        now = monotonic_s()
        for path in files:
            size = path.stat().st_size if path.exists() else sizes[path][0]
            if size != sizes[path][0]:
                sizes[path] = (size, now)
        if all(now - changed > _QUIET_S for _, changed in sizes.values()):
            break
        time.sleep(_LOOK_EVERY_S)
    return {path for path, (size, _) in sizes.items() if size > before.get(path, 0)}


def _from(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().decode(errors="replace")


def _dump(place: Place) -> int:
    program = shutil.which("py-spy")
    if program is None:
        raise UserError("--py-spy", "", "py-spy is not installed here; run: pip install py-spy, or use --stacks")
    print(f"\n=== {place.name}, process {place.pid}", flush=True)
    # It cannot suspend what stands still already, and need not.
    how = ["--nonblocking"] if _is_stopped(place.pid) else []
    try:
        return subprocess.run([program, "dump", *how, "--pid", str(place.pid)], timeout=_PY_SPY_S, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"py-spy did not end within {_PY_SPY_S:g} s", file=sys.stderr)
        return 1


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _elsewhere(place: Place, job: str) -> str:
    if job:
        return f"srun --jobid={job} --overlap -N1 -w {place.host} py-spy dump --pid {place.pid}"
    return f"{place.name} is on {place.host}; there: py-spy dump --pid {place.pid}"
