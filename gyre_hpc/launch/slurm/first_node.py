"""The first node of a job: begins an attempt, lives with its supervisor, and says what follows.

Invariants: an attempt is claimed only by a start that may still bring something (the crash-loop guard holds for SLURM's own requeues
too); what SLURM does with the job is asked when its first signal comes, because afterwards there may be no time (KillWait).
"""

import contextlib
import json
import sys
from collections.abc import Mapping

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Chain, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim, begin_attempt
from gyre_hpc.launch.holding import Stop, hold_supervisor
from gyre_hpc.launch.slurm import progress, queue
from gyre_hpc.launch.slurm.cell_map import node_map
from gyre_hpc.launch.slurm.chain import MOST_FRUITLESS, Ending, Fate, Next, fate_of, follow, fruitless_reason
from gyre_hpc.launch.slurm.keeping import call_back
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.machines.supervision import REFUSED, SUPERSEDED
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.observability.job_events import ENDED, JOB, STARTED, TOLD
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.report.html import write_report
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, write_summary
from gyre_hpc.runner.workspaces import remove_tree
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.mirror import write_private


def live(config: Config, folder: RunFolder, task: Task, stop: Stop) -> int:
    """One attempt, from its claim to the order of what follows; exit code of its supervisor. Raises UserError, OSError."""
    from gyre_hpc.launch.slurm.submit import asker_of

    asker = asker_of(folder, task.job)
    _stop_loop(folder, task, asker)
    places = node_map(config, task.hosts, queue.switches())
    claim = begin_attempt(folder, config)
    _say(claim, STARTED, {"job": task.job, "restarts": task.restarts, "hosts": list(task.hosts), "asker": asker})
    write_private(folder.node_map(claim.attempt), msgspec.json.encode(places))
    allocations = progress.allocations(folder, claim.attempt)
    told = Told(claim, task, stop, _ask_for_successor(config, claim, task) if allocations < config.launch.chain_limit else "")
    stop.at_first = told.look
    with hold_supervisor(folder, FIRST, ["--attempt", str(claim.attempt), *task.argv]) as supervisor:
        stop.pass_on_to(supervisor)
        code = supervisor.wait()
    if not config.debug.keep_workspaces and code != SUPERSEDED:
        with contextlib.suppress(OSError, UserError):
            remove_tree(scratch_folder(config, folder))
    fruitless = progress.fruitless(folder, claim.attempt)
    fate = Fate.unknown if code == SUPERSEDED else told.fate()  # SLURM may be out of reach, and has nothing to say then
    ending = Ending(code=code, signal=stop.came, fate=fate, fruitless=fruitless, allocations=allocations)
    what, why = follow(ending, config.launch.chain, config.launch.chain_limit)
    _say(claim, ENDED, {"job": task.job, "exit_code": code, "signal": stop.came, "next": what.value, "reason": why})
    print(f"attempt {claim.attempt} ended with {code}; next: {what.value} ({why})", flush=True)
    if code != SUPERSEDED:
        _complete_end(claim, code, what, why)
        _write_up(folder)
    _go_on(what, claim, task, told.successor)
    return code


def refuse(folder: RunFolder, task: Task, reason: str) -> None:
    """Noted under the attempt that would have begun."""
    claim = Claim(folder=folder, attempt=highest_attempt(folder.attempts) + 1)
    fields = {"job": task.job, "exit_code": REFUSED, "signal": "", "next": Next.end.value, "reason": reason}
    _say(claim, ENDED, fields)


class Told:
    """What SLURM does with the job, as it was when the first signal came."""

    def __init__(self, claim: Claim, task: Task, stop: Stop, successor: str) -> None:
        self._claim, self._task, self._stop, self._fate = claim, task, stop, Fate.unknown
        self.successor = successor
        """Job that waits for the end of this one; empty: none."""

    def look(self) -> None:
        """Somebody's cancel ends the successor too, as long as there is time to say so."""
        self._fate = fate_of(queue.job_fields(self._task.job), self._task.restarts)
        if self._fate is Fate.cancelled and self.successor:
            queue.cancel(self.successor)
        _say(self._claim, TOLD, {"job": self._task.job, "signal": self._stop.came, "fate": self._fate.value})

    def fate(self) -> Fate:
        """Asked again unless it was final."""
        if self._fate in (Fate.cancelled, Fate.requeued, Fate.timed_out):
            return self._fate
        now = fate_of(queue.job_fields(self._task.job), self._task.restarts)
        return self._fate if now is Fate.unknown else now


def _stop_loop(folder: RunFolder, task: Task, asker: str) -> None:
    """The crash-loop guard for starts that nobody decided: SLURM's own, and successors. Raises UserError."""
    count = progress.fruitless(folder, highest_attempt(folder.attempts))
    if count >= MOST_FRUITLESS and (task.restarts or asker):
        why = fruitless_reason(count)
        refuse(folder, task, why)
        raise UserError("run", str(folder.root), f"{why}; see logs/ there, then go on by hand with resume={folder.root}")


def _ask_for_successor(config: Config, claim: Claim, task: Task) -> str:
    """Its job id; empty: none was wanted, or it was refused (told, and the run goes on without)."""
    if config.launch.chain is not Chain.successor:
        return ""
    from gyre_hpc.launch.slurm.submit import enqueue

    try:
        return enqueue(config, claim.folder, f"afterany:{task.job}", asker=task.job)
    except (UserError, OSError) as error:
        _say(claim, "alarm", {"what": "no successor", "reason": str(error)})
        print(f"no successor could be submitted: {error}", file=sys.stderr, flush=True)
        return ""


def _complete_end(claim: Claim, code: int, what: Next, why: str) -> None:
    """attempts/<n>/end.json gets what follows; a supervisor that was killed left none."""
    path = end_of(claim.folder, claim.attempt)
    try:
        end = json.loads(path.read_bytes())
    except (OSError, ValueError):
        end = {"exit_code": code if code >= 0 else 128 - code, "reason": f"its supervisor ended with {code}", "time": unix_s()}
    with contextlib.suppress(OSError):  # a full disk: the job's log has it
        write_private(path, json.dumps(end | {"next": what.value, "why": why}).encode())


def _go_on(what: Next, claim: Claim, task: Task, successor: str) -> None:
    """A requeue ends this very process: it is the last thing we do."""
    trouble = ""
    if what is Next.end:
        with contextlib.suppress(UserError):  # SLURM does not answer: they end by themselves when they begin
            call_back(claim.folder)
    if what is Next.requeue:
        trouble = queue.requeue(task.job)
    elif what is Next.end and successor:
        trouble = queue.cancel(successor)
    if trouble:
        # SLURM may have put the job back by itself, as it does after a preemption.
        print(f"{what.value}: {trouble}", file=sys.stderr, flush=True)
        _say(claim, "alarm", {"what": f"{what.value} failed", "reason": trouble})


def _write_up(folder: RunFolder) -> None:
    """Summary and report of what there is so far."""
    try:
        summary = write_summary(read_story(folder.root))
        write_report(read_story(folder.root))
    except (OSError, UserError) as error:
        print(f"no report: {error}; later: gyre report {folder.root}", file=sys.stderr, flush=True)
    else:
        print(closing_line(summary, folder.report), flush=True)


def _say(claim: Claim, kind: str, fields: Mapping[str, object]) -> None:
    """The only writer of events/job-<attempt>.jsonl."""
    with (
        contextlib.suppress(OSError),
        contextlib.closing(EventWriter(claim.folder.events(JOB, claim.attempt), JOB, claim.attempt)) as events,
    ):
        events.note(kind, fields)
