"""What a launch on a login node says once its job is in the queue; SLURM's commands are scripts of the test."""

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.live_run import REPOSITORY

SLURM = {
    "sbatch": "echo Submitted batch job 7",
    "srun": "exit 0",
    "squeue": "exit 0",
    "scontrol": "echo JobId=7 JobState=PENDING Reason=None",
}


def test_ctrl_c_says_that_the_run_goes_on_as_soon_as_the_job_is_submitted(tmp_path: Path):
    for name, body in SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "rich.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")  # what the view is made of
    run = tmp_path / "run"
    words = (
        "+experiment=rehearsal",
        "cluster=slurm",
        "launch.wait=true",
        "launch.snapshot=false",
        f"paths.run={run}",
        f"paths.cache={tmp_path}",
    )
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "launch.py"), *words],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, f"the run goes on; see: gyre status {run}\n"), done.stdout
    assert "job: 7" in done.stdout
