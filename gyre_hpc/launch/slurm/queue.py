"""Questions and orders to SLURM by its own commands. Every one has a deadline; an answer that did not come is None or an error text."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gyre_hpc.allocation.base import Switch
from gyre_hpc.allocation.topology import read_topology
from gyre_hpc.errors import UserError

_ASK_S = 20.0
_PING_S = 2.0
_SYSTEM_CONFIG = Path("/etc/slurm/slurm.conf")


def ask(argv: list[str], deadline_s: float = _ASK_S) -> subprocess.CompletedProcess[str] | None:
    """None: no such command, or no answer in time."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=deadline_s, stdin=subprocess.DEVNULL, check=False,
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
            preexec_fn=_deaf,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None


def _deaf() -> None:
    """In the child: SLURM signals every process of a job that it ends, twice and more (tried with 22.05); a question asked then would die."""
    for sig in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(sig, signal.SIG_IGN)


def is_login_node(environ: Mapping[str, str] = os.environ) -> bool:
    """A SLURM cluster answers here, and we are in none of its allocations."""
    if "SLURM_JOB_ID" in environ or shutil.which("sbatch") is None:
        return False
    if "SLURM_CONF" not in environ and not _SYSTEM_CONFIG.exists():
        return False
    answer = ask(["scontrol", "ping"], _PING_S)
    return answer is not None and " UP" in answer.stdout


def job_fields(job: str) -> dict[str, str]:
    """What scontrol(1) says of a job, times in unix seconds; empty when SLURM does not know it or did not answer."""
    answer = ask(["scontrol", "show", "job", job, "-o"])
    if answer is None or answer.returncode:
        return {}
    return dict(re.findall(r"(\S+?)=(\S*)", answer.stdout))


def job_state(job: str) -> str:
    """JobState as scontrol(1) has it; empty when SLURM does not know or did not answer."""
    return job_fields(job).get("JobState", "")


def requeue(job: str) -> str:
    """Why it failed; empty: done."""
    return _order(["scontrol", "requeue", job])


def cancel(job: str) -> str:
    """Why it failed; empty: done."""
    return _order(["scancel", job])


def switches() -> tuple[Switch, ...]:
    """The cluster's topology; empty where it tells none."""
    answer = ask(["scontrol", "show", "topology"])
    if answer is None or answer.returncode or "SwitchName=" not in answer.stdout:
        return ()
    try:
        return tuple(read_topology(answer.stdout, "scontrol show topology"))
    except UserError:
        return ()


def _order(argv: list[str]) -> str:
    answer = ask(argv)
    if answer is None:
        return f"{argv[0]} did not answer"
    return "" if answer.returncode == 0 else (answer.stderr or answer.stdout).strip() or f"{argv[0]} failed with {answer.returncode}"
