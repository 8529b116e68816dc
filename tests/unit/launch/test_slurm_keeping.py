"""Satellite jobs that wait are cancelled when they are not wanted any more; those that run, and other jobs, are left alone. SLURM's commands are
scripts of the test."""

from pathlib import Path

import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import ClusterConfig, ClusterKind, Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm.keeping import call_back, keep
from gyre_hpc.machines.batch.satellites import SatelliteJobs
from gyre_hpc.observability.job_record import RUN, SATELLITE, JobRecord, record_job


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Satellites 1 to 4, of which 1 runs, 2 and 3 wait and 4 is gone; the run's own job 5 waits."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "squeue", r"printf '1 RUNNING\n2 PENDING\n3 PENDING\n5 PENDING\n9 PENDING\n'")
    program(programs, "scancel", f'echo "$1" >>{tmp_path}/cancelled')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    folder = RunFolder(tmp_path / "run")
    folder.jobs.mkdir(parents=True)
    for job in range(1, 6):
        record_job(folder, JobRecord(job=str(job), kind=RUN if job == 5 else SATELLITE, submitted=float(job)))
    return folder


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def cancelled(folder: RunFolder) -> list[str]:
    path = folder.root.parent / "cancelled"
    return path.read_text().split() if path.exists() else []


def test_at_the_end_of_a_run_those_that_wait_are_called_back(folder: RunFolder):
    call_back(folder)
    assert cancelled(folder) == ["2", "3"]


def test_a_run_without_satellites_asks_slurm_nothing(folder: RunFolder, tmp_path: Path):
    program(tmp_path / "bin", "squeue", "exit 1")
    with pytest.raises(UserError, match="squeue"):
        call_back(folder)
    call_back(RunFolder(tmp_path / "another"))
    assert not cancelled(folder)


def test_of_those_beyond_the_number_that_is_wanted_the_newest_that_wait_go(folder: RunFolder):
    config = Config(cluster=ClusterConfig(kind=ClusterKind.slurm))
    assert keep(config, folder, 3) == SatelliteJobs(waiting=2, running=1) and not cancelled(folder)
    assert keep(config, folder, 2) == SatelliteJobs(waiting=1, running=1) and cancelled(folder) == ["3"]
    assert keep(config, folder, 0) == SatelliteJobs(waiting=0, running=1)
