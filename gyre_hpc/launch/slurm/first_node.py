"""The first node of a job: begins an attempt, lives with its supervisor, and says what follows.

Invariant: an attempt is claimed only by a start that may still bring something: the crash-loop guard holds for SLURM's own requeues too,
and a person's stop is undone by none.
What must be done as soon as a signal comes is told.py's.
"""

import contextlib
import json
import sys
from typing import Any

import msgspec

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Chain, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim, begin_attempt
from gyre_hpc.launch.holding import Stop, hold_supervisor
from gyre_hpc.launch.slurm import progress, queue
from gyre_hpc.launch.slurm.cell_map import node_map
from gyre_hpc.launch.slurm.chain import MOST_FRUITLESS, Ending, Fate, Next, cause, follow, fruitless_reason
from gyre_hpc.launch.slurm.keeping import call_back
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.launch.slurm.told import Told, say
from gyre_hpc.launch.writing_up import write_up
from gyre_hpc.machines.supervision import REFUSED, SUPERSEDED
from gyre_hpc.observability.job_events import ENDED, STARTED
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.runner.scratch import remove_scratch
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.supervisor.mirror import write_private

_BY_SIGNAL = ("SIGTERM", "SIGINT", "parent closed the pipe")
"""Reasons of a supervisor that nobody but its parent, or SLURM, told to end."""


def live(config: Config, folder: RunFolder, task: Task, stop: Stop) -> int:
    """One attempt, from its claim to the order of what follows; exit code of its supervisor. Raises UserError, OSError."""
    from gyre_hpc.launch.slurm.submit import asker_of

    asker = asker_of(folder, task.job)
    _hold_back(folder, task, asker)
    places = node_map(config, task.hosts, queue.switches())
    claim = begin_attempt(folder, config)
    say(claim, STARTED, {"job": task.job, "restarts": task.restarts, "hosts": list(task.hosts), "asker": asker})
    write_private(folder.node_map(claim.attempt), msgspec.json.encode(places))
    allocations = progress.allocations(folder, claim.attempt)
    is_last = allocations >= config.launch.chain_limit
    successor = "" if is_last else _ask_for_successor(config, claim, task)
    told = Told(claim, task, stop, successor=successor, goes_on=config.launch.chain is Chain.requeue and not is_last)
    stop.at_signal = told.look
    with hold_supervisor(folder, FIRST, ["--attempt", str(claim.attempt), *task.argv]) as supervisor:
        stop.pass_on_to(supervisor)
        code = supervisor.wait()
    # Of a supervisor that was killed.
    remove_scratch(config, folder, code, is_newest=lambda: highest_attempt(folder.attempts) == claim.attempt)
    fruitless = progress.fruitless(folder, claim.attempt)
    fate = Fate.unknown if code == SUPERSEDED else told.fate()  # SLURM may be out of reach, and has nothing to say then
    ending = Ending(code=code, signal=stop.came, fate=fate, fruitless=fruitless, allocations=allocations, is_asked=_is_asked(claim))
    what, why = follow(ending, config.launch.chain, config.launch.chain_limit)
    say(claim, ENDED, {"job": task.job, "exit_code": code, "signal": stop.came, "next": what.value, "reason": why})
    print(f"attempt {claim.attempt} ended with {code}; next: {what.value} ({why})", flush=True)
    if code != SUPERSEDED:
        _complete_end(claim, ending, what, why)
        _write_up(folder)
    stop.at_signal = None  # what comes now is our own order's
    _go_on(what, claim, task, told)
    return code


def refuse(folder: RunFolder, task: Task, reason: str) -> None:
    """Noted under the attempt that would have begun."""
    claim = Claim(folder=folder, attempt=highest_attempt(folder.attempts) + 1)
    fields = {"job": task.job, "exit_code": REFUSED, "signal": "", "next": Next.end.value, "reason": reason}
    say(claim, ENDED, fields)


def _hold_back(folder: RunFolder, task: Task, asker: str) -> None:
    """Of starts that nobody decided: SLURM's own, and successors. Neither goes on with a crash loop, nor undoes a stop. Raises UserError."""
    if not (task.restarts or asker):
        return
    newest = highest_attempt(folder.attempts)
    count = progress.fruitless(folder, newest)
    why = fruitless_reason(count) if count >= MOST_FRUITLESS else ""
    if progress.is_stopped(folder, newest):
        why = f"a person stopped attempt {newest}, which was ended before it could take its job out of the queue"
    if why:
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
        say(claim, "alarm", {"what": "no successor", "reason": str(error)})
        print(f"no successor could be submitted: {error}", file=sys.stderr, flush=True)
        return ""


def _end(claim: Claim) -> dict[str, Any]:
    """attempts/<n>/end.json; empty: its supervisor left none."""
    try:
        end = json.loads(end_of(claim.folder, claim.attempt).read_bytes())
        return {**end, "reason": str(end["reason"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_asked(claim: Claim) -> bool:
    """A person's stop was under way when the signal came, or came while the signal was answered."""
    return _end(claim).get("reason", _BY_SIGNAL[0]) not in _BY_SIGNAL


def _complete_end(claim: Claim, ending: Ending, what: Next, why: str) -> None:
    """It gets what follows, and what the signal meant: a supervisor knows ours alone. One that was killed left nothing."""
    code = ending.code if ending.code >= 0 else 128 - ending.code
    end = _end(claim) or {"exit_code": code, "reason": f"its supervisor ended with {ending.code}", "time": unix_s()}
    if ending.signal and end["reason"] in _BY_SIGNAL:
        end["reason"] = cause(ending)
    with contextlib.suppress(OSError):  # a full disk: the job's log has it
        write_private(end_of(claim.folder, claim.attempt), json.dumps(end | {"next": what.value, "why": why}).encode())


def _go_on(what: Next, claim: Claim, task: Task, told: Told) -> None:
    """A requeue ends this very process: it is the last thing we do."""
    trouble = ""
    if what is Next.end:
        with contextlib.suppress(UserError):  # SLURM does not answer: they end by themselves when they begin
            call_back(claim.folder)
    if what is Next.requeue:
        trouble = "" if told.is_put_back else queue.requeue(task.job)
    elif told.is_put_back:
        trouble = queue.cancel(task.job)
    elif what is Next.end and told.successor:
        trouble = queue.cancel(told.successor)
    if trouble:
        # SLURM may have put the job back by itself, as it does after a preemption.
        print(f"{what.value}: {trouble}", file=sys.stderr, flush=True)
        say(claim, "alarm", {"what": f"{what.value} failed", "reason": trouble})


def _write_up(folder: RunFolder) -> None:
    try:
        print(write_up(folder), flush=True)
    except UserError as error:
        print(error, file=sys.stderr, flush=True)
