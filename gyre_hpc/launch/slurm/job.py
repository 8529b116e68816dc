"""What runs on each node of a job: pre-flight, then the node's supervisor. The first node's part is first_node.py, the end of all others
stands here.

Signals. SIGUSR2 comes before a time limit or a preemption (where the site sends it), SIGTERM with or without it, or nothing comes.
Either one makes the first node stop the run in order; the other nodes wait for its word. SLURM sends SIGTERM to every process of the
job: then all end at once. What comes after is chain.follow's decision; where the first node is lost, a survivor's.
"""

import dataclasses
import os
import signal
import sys
from dataclasses import dataclass

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import load_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.finished import is_finished
from gyre_hpc.launch.holding import Stop, hold_supervisor, stop_signals
from gyre_hpc.launch.preflight.gather import preflight
from gyre_hpc.launch.slurm import survivor
from gyre_hpc.launch.slurm.first_node import live, refuse
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED


@dataclass(frozen=True, slots=True)
class RunJob:
    """The function of a job, on each of its nodes; ends the process with the exit code."""

    run: str
    """Absolute path of the run folder."""

    def __call__(self) -> None:
        task, folder = Task.of(os.environ), RunFolder(self.run)
        config = load_config(folder.config)
        if is_finished(dataclasses.replace(config, resume=self.run)):
            # SLURM started it once more, for a reason of its own.
            print("nothing left to do", flush=True)
            sys.exit(0)
        try:
            with stop_signals(signal.SIGUSR2) as stop:
                _look_first(config, folder, task)
                code = live(config, folder, task, stop) if task.node == 0 else _other(config, folder, task, stop)
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            code = REFUSED
        sys.exit(code if code >= 0 else 1)


def _look_first(config: Config, folder: RunFolder, task: Task) -> None:
    """Raises UserError where the run cannot work on these nodes."""
    verdict = preflight(config, folder, task.hosts, task.node, f"{task.job}-{task.restarts}")
    try:
        if verdict is not None:
            verdict.enforce()
    except UserError as error:
        if task.node == 0:
            refuse(folder, task, str(error))
        raise


def _other(config: Config, folder: RunFolder, task: Task, stop: Stop) -> int:
    """It ends when the first node says so, or when it hears nothing more of it: no signal of ours hurries it."""
    with hold_supervisor(folder, f"supervisor-{task.node}", ["--node", str(task.node), *task.argv]) as supervisor:
        code = supervisor.wait()
    if code == NODE_LOST:
        print("the first node is not heard any more", flush=True)
        try:
            ordered = survivor.go_on(config, folder, task, stop)
        except OSError as error:
            print(f"the first node is lost; nothing could be ordered: {error}", file=sys.stderr, flush=True)
        else:
            print(f"the first node is lost; next: {ordered or 'said by others'}", flush=True)
    return code
