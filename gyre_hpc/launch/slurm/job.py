"""What runs on each node of a job: holds the node's supervisor, and on the first node begins the attempt and ends it.

Signals. SIGUSR2 comes before a time limit or a preemption (where the site sends it), SIGTERM with or without it, or nothing comes.
Either one makes the first node stop the run in order; the other nodes wait for its word. SLURM sends SIGTERM to every process of the
job: then all end at once. What comes after is chain.follow's decision; where the first node is lost, a survivor's.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gyre_hpc.allocation.hostlist import expand
from gyre_hpc.config.place import scratch_folder
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Chain, Config
from gyre_hpc.config.stored import load_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim, begin_attempt
from gyre_hpc.launch.holding import Stop, hold_supervisor, stop_signals
from gyre_hpc.launch.preflight.gather import preflight
from gyre_hpc.launch.slurm import progress, queue, survivor
from gyre_hpc.launch.slurm.cell_map import node_map
from gyre_hpc.launch.slurm.chain import Ending, Next, fate_of, follow
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED, SUPERSEDED
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.protocol.node_map import FIRST
from gyre_hpc.report.html import write_report
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, write_summary
from gyre_hpc.runner.workspaces import remove_tree
from gyre_hpc.supervisor.attempts import highest_attempt
from gyre_hpc.supervisor.mirror import write_private

NAME = "job"


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """This process within its job, as SLURM says (srun(1), output environment variables)."""

    job: str
    restarts: int
    node: int
    """Place in `hosts`."""
    hosts: tuple[str, ...]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Task":
        """Raises KeyError outside of a job step."""
        hosts = expand(environ["SLURM_JOB_NODELIST"], "SLURM_JOB_NODELIST")
        return cls(
            job=environ["SLURM_JOB_ID"],
            restarts=int(environ.get("SLURM_RESTART_COUNT", 0)),
            node=int(environ["SLURM_NODEID"]),
            hosts=hosts,
        )

    @property
    def argv(self) -> list[str]:
        """Of any supervisor."""
        return ["--job", self.job, "--restarts", str(self.restarts), "--host", self.hosts[self.node]]


@dataclass(frozen=True, slots=True)
class RunJob:
    """The function of a job, on each of its nodes; ends the process with the exit code."""

    run: str
    """Absolute path of the run folder."""

    def __call__(self) -> None:
        task, folder = Task.of(os.environ), RunFolder(self.run)
        config = load_config(folder.config)
        try:
            with stop_signals(signal.SIGUSR2) as stop:
                _look_first(config, folder, task)
                code = _first(config, folder, task, stop) if task.node == 0 else _other(config, folder, task)
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            code = 2
        sys.exit(code if code >= 0 else 1)


def _look_first(config: Config, folder: RunFolder, task: Task) -> None:
    """Raises UserError where the run cannot work on these nodes. Noted under the attempt that would have begun."""
    verdict = preflight(config, folder, task.hosts, task.node, f"{task.job}-{task.restarts}")
    try:
        if verdict is not None:
            verdict.enforce()
    except UserError as error:
        if task.node == 0:
            claim = Claim(folder=folder, attempt=highest_attempt(folder.attempts) + 1)
            fields = {"job": task.job, "exit_code": REFUSED, "signal": "", "next": Next.end.value, "reason": str(error)}
            _say(claim, "job_ended", fields)
        raise


def _first(config: Config, folder: RunFolder, task: Task, stop: Stop) -> int:
    places = node_map(config, task.hosts, queue.switches())
    claim = begin_attempt(folder, config)
    _say(claim, "job_started", {"job": task.job, "restarts": task.restarts, "hosts": list(task.hosts)})
    write_private(folder.node_map(claim.attempt), msgspec.json.encode(places))
    successor = _ask_for_successor(config, claim, task)
    with hold_supervisor(folder, FIRST, ["--attempt", str(claim.attempt), *task.argv]) as supervisor:
        stop.pass_on_to(supervisor)
        code = supervisor.wait()
    if not config.debug.keep_workspaces and code != SUPERSEDED:
        with contextlib.suppress(OSError, UserError):
            remove_tree(scratch_folder(config, folder))
    ending = Ending(
        code=code,
        signal=stop.came,
        fate=fate_of(queue.job_fields(task.job), task.restarts),
        fruitless=progress.fruitless(folder, claim.attempt),
        allocations=claim.attempt,
    )
    what, why = follow(ending, config.launch.chain, config.launch.chain_limit)
    _say(claim, "job_ended", {"job": task.job, "exit_code": code, "signal": stop.came, "next": what.value, "reason": why})
    print(f"attempt {claim.attempt} ended with {code}; next: {what.value} ({why})", flush=True)
    if code != SUPERSEDED:
        _write_up(folder)
    _go_on(what, claim, task, successor)
    return code


def _other(config: Config, folder: RunFolder, task: Task) -> int:
    """It ends when the first node says so, or when it hears nothing more of it: no signal of ours hurries it."""
    with hold_supervisor(folder, f"supervisor-{task.node}", ["--node", str(task.node), *task.argv]) as supervisor:
        code = supervisor.wait()
    if code == NODE_LOST:
        try:
            ordered = survivor.go_on(config, folder, task.job, task.restarts)
        except OSError as error:
            print(f"the first node is lost; nothing could be ordered: {error}", file=sys.stderr, flush=True)
        else:
            print(f"the first node is lost; next: {ordered or 'said by others'}", flush=True)
    return code


def _ask_for_successor(config: Config, claim: Claim, task: Task) -> str:
    """Its job id; empty: none was wanted, or it was refused (told, and the run goes on without)."""
    if config.launch.chain is not Chain.successor or claim.attempt >= config.launch.chain_limit:
        return ""
    from gyre_hpc.launch.slurm.submit import enqueue

    try:
        return enqueue(config, claim.folder, f"afterany:{task.job}")
    except (UserError, OSError) as error:
        _say(claim, "alarm", {"what": "no successor", "reason": str(error)})
        print(f"no successor could be submitted: {error}", file=sys.stderr, flush=True)
        return ""


def _go_on(what: Next, claim: Claim, task: Task, successor: str) -> None:
    """A requeue ends this very process: it is the last thing we do."""
    trouble = ""
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
        contextlib.closing(EventWriter(claim.folder.events(NAME, claim.attempt), NAME, claim.attempt)) as events,
    ):
        events.note(kind, fields)
