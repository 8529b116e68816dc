"""From a login node: the run folder, one job, and a word on how to follow it. Loads no torch and leaves no process."""

import sys
from pathlib import Path

from gyre_hpc.clock import unix_s
from gyre_hpc.config.cluster_schema import SatellitesAt
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.finished import check_updates, is_finished
from gyre_hpc.launch.folder import claimed_folder, fill
from gyre_hpc.launch.slurm import queue
from gyre_hpc.launch.slurm.cell_map import described, node_map
from gyre_hpc.launch.slurm.job import RunJob
from gyre_hpc.launch.slurm.last_save import check_last_save
from gyre_hpc.launch.slurm.sbatch import request_of, script, submit
from gyre_hpc.launch.slurm.snapshot import as_it_stands, take
from gyre_hpc.launch.surroundings import check_inputs
from gyre_hpc.machines.supervision import STOPPED
from gyre_hpc.observability.job_record import RUN, JobRecord, jobs_of, record_job
from gyre_hpc.report.story import read_story
from gyre_hpc.report.summary import closing_line, write_summary
from gyre_hpc.report.watch.leaving import leave
from gyre_hpc.report.watch.squeue import LIVING, PENDING
from gyre_hpc.telling import fall_silent, tell


def main(config: Config) -> int:
    """Submit, or with launch.dry_run print what would be; return the exit code. Raises UserError."""
    check_inputs(config)
    node_map(config, _made_up_hosts(config))
    if config.launch.dry_run:
        return _show(config)
    check_updates(config)
    if is_finished(config):
        story = read_story(config.resume)
        tell(f"nothing left to do; {closing_line(write_summary(story), story.folder.report)}")
        return 0
    _refuse_twice(config)
    check_last_save(config)
    with claimed_folder(config, unix_s()) as folder:
        folder.root.chmod(0o700)
        fill(folder, config)
        job = enqueue(config, folder)
    try:
        tell(f"run: {folder.root}\njob: {job} (nodes: {config.cluster.slurm.nodes})")
        _add_satellites(config, folder, job)
        tell(f"follow it:  gyre status {folder.root}\n            gyre logs {folder.root} -f\nend it:     gyre stop {folder.root}")
        code = _stay(folder) if config.launch.wait else 0
    except KeyboardInterrupt:  # before the view was there to hear it
        leave(folder)
        return STOPPED
    if config.launch.wait and code == 0:
        tell(closing_line(write_summary(read_story(folder.root)), folder.report))
    return code


def _add_satellites(config: Config, folder: RunFolder, job: str) -> None:
    """launch.satellites_at=launch. The run needs none: a refusal is told, and that is all."""
    from gyre_hpc.launch.slurm.satellite import submit_at_launch

    if config.launch.satellites_at is not SatellitesAt.launch or not config.launch.satellites:
        return
    try:
        tell(f"satellites: {', '.join(submit_at_launch(config, folder, job))}")
    except (UserError, OSError) as error:
        tell(f"satellites were refused, the run goes on without: {error}", sys.stderr)


def enqueue(config: Config, folder: RunFolder, dependency: str = "", asker: str = "") -> str:
    """Put a job of this run into the queue; return its id. asker: the job that wants it. Raises UserError, OSError."""
    code = take(folder) if config.launch.snapshot else as_it_stands()
    folder.jobs.mkdir(exist_ok=True)
    request = request_of(config, code, dependency)
    job = submit(request, folder.jobs, RunJob(str(folder.root)))
    record_job(folder, JobRecord(job=job, submitted=unix_s(), partition=request.partition, nodes=request.nodes,
                                 time_min=request.time_min, name=request.name, asker=asker))  # fmt: skip
    return job


def asker_of(folder: RunFolder, job: str) -> str:
    """Job that asked for `job`; empty: a person did, or it is not told."""
    return next((record.asker for record in jobs_of(folder, RUN) if record.job == job), "")


def _refuse_twice(config: Config) -> None:
    """Two allocations of one run: the newer attempt would end the older one."""
    for record in jobs_of(RunFolder(config.resume), RUN) if config.resume else []:
        if (state := queue.job_state(record.job)) in LIVING | PENDING:
            how = f"scancel {record.job}" if state in PENDING else f"gyre stop, or scancel {record.job}"
            raise UserError("resume", config.resume, f"its job {record.job} is {state}; end it first: {how}")


def _show(config: Config) -> int:
    folder = Path(config.paths.run or "RUN").absolute()
    code = folder / "code" if config.launch.snapshot else as_it_stands()
    tell(script(request_of(config, code), folder / "jobs"))
    tell(f"\n# cells, on nodes as they would be asked for\n{described(config, _made_up_hosts(config))}")
    return 0


def _made_up_hosts(config: Config) -> list[str]:
    return [f"node-{place}" for place in range(config.cluster.slurm.nodes)]


def _stay(folder: RunFolder) -> int:
    """The live view, until nothing of the run follows any more; its exit code. Ctrl-C leaves the run alone."""
    from gyre_hpc.report.watch.attach import attach
    from gyre_hpc.report.watch.watched import open_run

    try:
        return attach(open_run(folder.root), when_left=STOPPED)
    except OSError:  # a reader that is gone: the exit code is still wanted
        fall_silent()
        return attach(open_run(folder.root), when_left=STOPPED)
