"""Keeps as many satellite jobs asked for as the run wants now: missing ones are submitted, waiting ones beyond are cancelled.

One question to SLURM for all jobs of this user. What runs is left alone: it ends by itself.
"""

import getpass

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.slurm import queue
from gyre_hpc.launch.slurm.satellite import Asked, submit_satellite
from gyre_hpc.machines.batch.satellites import SatelliteJobs
from gyre_hpc.observability.job_record import SATELLITE, jobs_of
from gyre_hpc.report.watch.squeue import LIVING, PENDING


def keep(config: Config, folder: RunFolder, wanted: int) -> SatelliteJobs:
    """Raises UserError when SLURM does not answer: nothing is ordered blindly."""
    states = _states()
    mine = [(record.job, states[record.job]) for record in jobs_of(folder, SATELLITE) if record.job in states]
    running = [job for job, state in mine if state in LIVING]
    waiting = [job for job, state in mine if state in PENDING]
    while waiting and len(waiting) + len(running) > wanted:
        queue.cancel(waiting.pop())  # what was not cancelled is found again next time
    refused = ""
    while not refused and len(waiting) + len(running) < wanted:
        try:
            waiting.append(submit_satellite(config, folder, Asked.of(config)))
        except (UserError, OSError) as error:
            refused = str(error)
    return SatelliteJobs(waiting=len(waiting), running=len(running), refused=refused)


def call_back(folder: RunFolder) -> None:
    """Cancel the satellite jobs that wait: the run is over, and they would find nothing to join. Raises UserError when SLURM does not
    answer."""
    records = jobs_of(folder, SATELLITE)
    states = _states() if records else {}
    for record in records:
        if states.get(record.job) in PENDING:
            queue.cancel(record.job)


def _states() -> dict[str, str]:
    """Of every job of this user."""
    answer = queue.ask(["squeue", "-h", "-u", getpass.getuser(), "-o", "%i %T"])
    if answer is None or answer.returncode:
        said = "no answer" if answer is None else answer.stderr.strip()
        raise UserError("squeue", said, "SLURM does not say which satellites there are")
    return {job: state for job, _, state in (line.strip().partition(" ") for line in answer.stdout.splitlines())}
