"""What tests do to the SLURM of slurm/testcluster: jobs in, states out, faults of nodes.

Invariant: `clean_up` undoes what was done through this object and nothing else. Only jobs that were submitted here (or handed to
`adopt`) are cancelled; others may share the cluster.
"""

import enum
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.live_run import wait_for
from tests.fakes.required import need

SCRIPTS = Path(__file__).parents[2] / "slurm" / "testcluster"
NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class JobState(enum.Enum):
    """SLURM's words for where a job is, as far as tests tell them apart.

    pending -> running -> completing -> completed | failed | cancelled | timeout | node_fail | preempted; a requeued job is pending again.
    """

    pending = "PENDING"
    running = "RUNNING"
    completing = "COMPLETING"
    completed = "COMPLETED"
    failed = "FAILED"
    cancelled = "CANCELLED"
    timeout = "TIMEOUT"
    node_fail = "NODE_FAIL"
    preempted = "PREEMPTED"
    requeued = "REQUEUED"
    suspended = "SUSPENDED"
    configuring = "CONFIGURING"
    stopped = "STOPPED"
    signaling = "SIGNALING"
    out_of_memory = "OUT_OF_MEMORY"
    deadline = "DEADLINE"
    boot_fail = "BOOT_FAIL"


class Cluster:
    """A running test cluster; `folder` is what its scripts call GYRE_SLURM_DIR."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "GYRE_SLURM_DIR": str(folder), "SLURM_CONF": str(folder / "slurm.conf")}
        self.nodes: tuple[str, ...] = tuple(sorted(set(self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N").split()), key=node_number))
        self._jobs: set[int] = set()
        self._faulty: set[str] = set()
        self._is_changed = False

    # What a client does. `user` is "" (who runs the tests) or "nobody", which only root can ask for.

    def run(self, *command: str | Path, user: str = "", cwd: Path | None = None, within_s: float = 30.0) -> str:
        """Standard output of a client's command; fails with its standard error."""
        done = ask([*as_user(user), *map(str, command)], surroundings(self.environ, user), within_s, cwd)
        assert done.returncode == 0, (
            f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr.strip()} {done.stdout.strip()}"
        )
        return done.stdout

    def submit(self, script: str, *options: str, folder: Path, user: str = "") -> int:
        """Hand `script` (bash) to sbatch from `folder`, where it writes JOB.out; returns the job's number."""
        path = folder / "job.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        printed = self.run("sbatch", "--parsable", "--output=%j.out", "--open-mode=append", *options, path, user=user, cwd=folder)
        return self.adopt(int(printed))

    def adopt(self, job: int) -> int:
        """Cancel `job` at the end of the test too, whoever submitted it."""
        self._jobs.add(job)
        return job

    def fields(self, job: int) -> dict[str, str]:
        """What scontrol says of a job; SLURM keeps it for an hour after the end."""
        return dict(re.findall(r"(\S+?)=(\S*)", self._asked("scontrol", "--oneliner", "show", "job", str(job))))

    def _asked(self, *question: str) -> str:
        """A client that loses its connection to a busy controller dies of SIGPIPE (seen); what changes nothing is asked again."""
        for _ in range(3):
            done = ask(question, self.environ)
            if done.returncode != -signal.SIGPIPE:
                break
        assert done.returncode == 0, f"{question} ended with {done.returncode}: {done.stderr.strip()}"
        return done.stdout

    def state(self, job: int) -> JobState:
        return JobState(self.fields(job)["JobState"])

    def wait_for(self, job: int, *states: JobState, within_s: float = 30.0) -> JobState:
        """Poll until the job is in one of `states`."""
        seen: list[JobState] = []

        def there() -> bool:
            seen.append(self.state(job))
            return seen[-1] in states

        wait_for(there, f"job {job} {'|'.join(state.name for state in states)}", within_s, every_s=0.2)
        return seen[-1]

    def kick(self, job: int, within_s: float = 30.0) -> None:
        """Start a requeued job soon; SLURM makes it wait for two minutes. Waits until it is queued again."""
        wait_for(lambda: self._queued_again(job), f"job {job} queued again", within_s, every_s=0.2)
        self.start_soon(job)

    def start_soon(self, job: int) -> None:
        """Of one that waits. In the second of its end a node would take it for the start that was ended ("Job credential revoked")."""
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def _queued_again(self, job: int) -> bool:
        fields = self.fields(job)
        return fields["JobState"] == JobState.pending.value and fields["Restarts"] != "0"

    def cancel(self, job: int, *options: str) -> None:
        self.run("scancel", *options, str(job))

    def squeue(self, *options: str) -> list[str]:
        """Lines of squeue without its heading."""
        return self.run("squeue", "-h", *options).splitlines()

    # Faults, which need root. Whoever shares the cluster feels them: give your tests a cluster of their own (GYRE_SLURM_NUMBER).

    def node_state(self, node: str) -> str:
        """As sinfo has it: "idle", "mixed", "allocated", "down"; with `*` behind it when the node does not answer."""
        return self.run("sinfo", "-h", "-n", node, "-p", "main", "-o", "%T").strip()

    def wait_for_node(self, node: str, *states: str, within_s: float = 60.0) -> None:
        wait_for(lambda: self.node_state(node) in states, f"{node} {'|'.join(states)}", within_s, every_s=0.3)

    def node_off(self, node: str) -> None:
        """Every process of the node dies at once."""
        self._node("off", node)

    def node_on(self, node: str) -> None:
        self._node("on", node)

    def cut(self, node: str) -> None:
        """Nothing reaches or leaves the node any more; its processes live on."""
        self._node("cut", node)

    def mend(self, node: str) -> None:
        self._node("mend", node)

    def pause(self, node: str) -> None:
        """Every process of the node stands still."""
        self._node("pause", node)

    def resume(self, node: str) -> None:
        self._node("resume", node)

    def inside(self, node: str, *command: str, within_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node, not as a job; any exit status is an answer."""
        need_root()
        return ask(["bash", SCRIPTS / "node.sh", "sh", node, *command], self.environ, within_s)

    def send_user_signal(self, on: bool) -> None:
        """Whether preemption sends a job's own signal (preempt_send_user_signal). On at first, and after each test."""
        self._change(f"user_signal={'on' if on else 'off'}")

    def kill_late(self) -> None:
        """A job that SLURM ends has the time that it needs to say what follows, however busy the machine is. Else it has 5 s."""
        self._change("kill_wait_s=600")

    def _change(self, *settings: str) -> None:
        need_root()
        self._is_changed = True
        self.run("bash", SCRIPTS / "reconfigure.sh", *settings)

    def _node(self, action: str, node: str) -> None:
        need_root()
        self._faulty.add(node)
        self.run("bash", SCRIPTS / "node.sh", action, node)

    def clean_up(self) -> None:
        """Cancel the jobs of this object, bring its faulty nodes back, and wait until both is done."""
        if self._is_changed:
            self._change("user_signal=on", "kill_wait_s=5")
            self._is_changed = False
        if self._jobs:
            self.run("scancel", *map(str, self._jobs))
        for node in self._faulty:
            for action in ("resume", "mend", "on"):
                self.run("bash", SCRIPTS / "node.sh", action, node)
        for node in self._faulty:
            self.wait_for_node(node, "idle", "mixed", "allocated")
        jobs = ",".join(map(str, self._jobs))
        wait_for(lambda: not jobs or not self.squeue("-j", jobs), f"the end of jobs {jobs}", every_s=0.2)
        self._jobs.clear()
        self._faulty.clear()


def ask(
    command: Sequence[str | Path], environ: Mapping[str, str], within_s: float = 60.0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; any exit status is an answer."""
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True, timeout=within_s, check=False)


def node_number(node: str) -> int:
    return int(node.removeprefix("n"))


def need_root() -> None:
    need("slurm", "" if os.geteuid() == 0 else "what happens to a node needs root")


def as_user(user: str) -> tuple[str, ...]:
    """What stands before a command so that `user` runs it."""
    assert user in ("", "nobody"), user
    return NOBODY if user else ()


def surroundings(environ: Mapping[str, str], user: str) -> dict[str, str]:
    """An unprivileged user inherits nothing of root's."""
    if not user:
        return dict(environ)
    return {"PATH": PATH, "HOME": "/nonexistent", "USER": user, "LOGNAME": user, "SLURM_CONF": environ["SLURM_CONF"]}


def folder_of_this_machine() -> Path:
    """As slurm/testcluster/cluster.sh has it."""
    number = os.environ.get("GYRE_SLURM_NUMBER", "0")
    return Path(os.environ.get("GYRE_SLURM_DIR") or "/var/tmp/gyre-slurm" + (f"-{number}" if number != "0" else ""))


def problem(folder: Path) -> str:
    """Why there is no cluster for tests in `folder`, and the remedy; empty: one answers."""
    if (folder / "env.sh").exists() and shutil.which("sinfo"):
        environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        asked = ask(["sinfo", "-h"], environ)
        return "" if asked.returncode == 0 else f"the cluster in {folder} does not answer ({asked.stderr.strip()}): make slurm-up"
    return impossible(os.environ) or "no cluster is up: make test-slurm starts one, make slurm-up leaves it up"


def impossible(environ: Mapping[str, str]) -> str:
    """Why no cluster can stand on this machine; empty: one can."""
    reason = ask(["bash", "-c", f". {SCRIPTS}/cluster.sh; problem"], environ)
    return (reason.stdout or reason.stderr).strip()
