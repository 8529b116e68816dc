"""What SLURM says when it does not take a job, or takes it and would never start it: one line about the key that it concerns. Pure.

Source of the words: sbatch and scontrol of SLURM 22.05; where none of them is known the whole job is meant.
"""

import re
from collections.abc import Mapping

from gyre_hpc.errors import UserError

_CONCERNS = (
    (r"account", "account"),
    (r"partition", "partition"),
    (r"\bqos\b", "qos"),
    (r"feature|--constraint", "constraint"),
    (r"\bgres\b|--gpus", "gpus_per_node"),
    (r"memory|--mem", "memory_gb"),
    (r"cpu count|--cpus", "cpus_per_node"),
    (r"node count", "nodes"),
    (r"time limit|--time", "time_min"),
)
"""Words -> key below cluster.slurm; the first one that is found counts."""
_UNREACHED = r"unable to contact slurm controller|res_n?search|configuration source|unable to resolve|connection refused"
"""Nobody has read the request."""
_NEVER = {
    "PartitionConfig": "",
    "PartitionNodeLimit": "nodes",
    "PartitionTimeLimit": "time_min",
    "BadConstraints": "constraint",
    "InvalidAccount": "account",
    "AccountNotAllowed": "account",
    "InvalidQOS": "qos",
    "QOSNotAllowed": "qos",
}
"""Reasons for which a job waits until somebody changes it or the cluster; nodes that are down or drained have others (tried)."""


def refused(said: str, asked: Mapping[str, object], prefix: str) -> UserError:
    """Of sbatch's or srun's standard error. asked: what the job asked for, by key; prefix: before the key."""
    why = _first_error(said)
    if re.search(_UNREACHED, why, re.IGNORECASE):
        remedy = f"SLURM does not answer here ({why}): submit from a login node, or name its configuration by SLURM_CONF"
        return UserError("cluster.kind", "slurm", remedy)
    key = next((key for words, key in _CONCERNS if re.search(words, why, re.IGNORECASE)), "")
    return _error(key, asked, prefix, f"SLURM refused the job: {why}")


def never_starts(reason: str, asked: Mapping[str, object], prefix: str) -> UserError | None:
    """Of a job that was taken; None: it may well start."""
    key = _NEVER.get(reason)
    if key is None:
        return None
    return _error(key, asked, prefix, f"SLURM would take the job and never start it ({reason}): ask for what its partition has")


def _error(key: str, asked: Mapping[str, object], prefix: str, why: str) -> UserError:
    if key in asked:
        return UserError(prefix + key, asked[key], why)
    return UserError(prefix.rstrip(".") or "job", ", ".join(f"{name}={value}" for name, value in asked.items() if value), why)


def _first_error(said: str) -> str:
    """The line that says why: of several the first one is the most exact."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    line = next((line for line in lines if re.search(r"error: |unrecognized option|invalid option|option requires", line)), " ".join(lines))
    return re.sub(r"^(sbatch|srun): (error: )?(Batch job submission failed: |Unable to allocate resources: )?", "", line)
