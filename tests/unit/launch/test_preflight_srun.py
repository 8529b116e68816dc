"""What a pre-flight says of a job that SLURM does not take, or does not start; SLURM's commands are scripts of the test."""

from pathlib import Path

import pytest

from gyre_hpc.config.schema import ClusterConfig, ClusterKind, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.srun import srun

QUEUED = "echo 'srun: job 7 queued and waiting for resources' >&2"


@pytest.fixture
def config() -> Config:
    made = Config(cluster=ClusterConfig(kind=ClusterKind.slurm))
    made.cluster.slurm.nodes, made.cluster.slurm.gpus_per_node, made.cluster.slurm.partition = 9, 8, "big"
    return made


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("srun: error: Invalid generic resource (gres) specification", "cluster.slurm.gpus_per_node=8: SLURM refused the job: Invalid gen"),
        (
            "srun: error: invalid partition specified: big\nsrun: error: Unable to allocate resources: Invalid partition name specified",
            "cluster.slurm.partition='big': SLURM refused the job: invalid partition specified: big",
        ),
    ],
)
def test_what_slurm_refuses_is_told_with_its_key(config: Config, programs: Path, said: str, told: str):
    program(programs, "srun", f"echo '{said}' >&2\nexit 1")
    with pytest.raises(UserError) as caught:
        srun(config, ["true"])
    assert str(caught.value).startswith(told)


def test_a_task_that_fails_is_no_refusal(config: Config, programs: Path):
    program(programs, "srun", "echo 'srun: error: n1: task 0: Exited with exit code 1' >&2\nexit 1")
    assert srun(config, ["true"]) == "srun: error: n1: task 0: Exited with exit code 1"


def test_a_job_that_would_never_start_is_cancelled_and_told(config: Config, programs: Path):
    program(programs, "srun", f"{QUEUED}\nexec sleep 600")
    program(programs, "scontrol", "echo 'JobId=7 JobState=PENDING Reason=PartitionConfig'")
    program(programs, "scancel", f"echo $1 >{programs}/cancelled")
    with pytest.raises(UserError, match=r"never start it \(PartitionConfig\)"):
        srun(config, ["true"])
    assert (programs / "cancelled").read_text() == "7\n"


def test_a_job_that_waits_is_told_with_its_reason(config: Config, programs: Path, capsys: pytest.CaptureFixture[str]):
    program(programs, "srun", f"{QUEUED}\nexit 0")
    program(programs, "scontrol", "echo 'JobId=7 JobState=PENDING Reason=Priority'")
    srun(config, ["true"])
    assert capsys.readouterr().err == "job 7 waits in the queue (Priority); Ctrl-C gives it up\n"
