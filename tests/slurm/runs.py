"""A run that is a SLURM job of the test cluster: submitted by `launch.py`, seen from outside by its folder, its job and the nodes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.observability.events import Event, read_events
from gyre_hpc.observability.job_record import RUN, jobs_of
from gyre_hpc.observability.status import Status, read_status
from gyre_hpc.shell.lifetime import PARENT_PID
from tests.fakes.live_run import REPOSITORY, wait_for
from tests.fakes.whole_run import consumed, first_names, unended
from tests.slurm.cluster import Cluster, JobState

UPDATES = 10
TIMED = (
    "+experiment=rehearsal", "cluster=slurm", "cluster.cells=2", "algo.groups_per_batch=3", "algo.group_size=4", f"algo.updates={UPDATES}",
    "cluster.slurm.node_silence_s=20", "cluster.slurm.time_min=20",
)  # fmt: skip
"""A quarter of a minute on two quiet nodes, long enough to be met in its midst: no torch, no warm start, no evaluation."""
OVER = (JobState.completed, JobState.failed, JobState.cancelled, JobState.timeout, JobState.node_fail)


def launch(
    cluster: Cluster, root: Path, *overrides: str, within_s: float = 60.0, stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """launch.py on the login node, in `root`."""
    environ = {name: value for name, value in cluster.environ.items() if name != PARENT_PID and not name.startswith("SLURM_JOB")}
    argv = [sys.executable, str(REPOSITORY / "launch.py"), *overrides, f"paths.cache={root / 'cache'}"]
    return subprocess.run(
        argv,
        cwd=root,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=within_s,
        check=False,
    )


def make_ours(root: Path) -> None:
    """For a run below it: sandboxes of root see no folder that is closed to it but for its rights."""
    os.chown(root, os.geteuid(), os.getegid())


class SlurmRun:
    """Submitted at once; the job is cancelled by the cluster's clean-up. `overrides` come after TIMED. Runs of one `root` share cache and
    scratch."""

    def __init__(self, cluster: Cluster, root: Path, *overrides: str, name: str = "run") -> None:
        self.cluster, self.root, self.folder = cluster, root, RunFolder(root / name)
        scratch = root / "s"
        make_ours(root)
        done = launch(cluster, root, *TIMED, *overrides, f"paths.run={self.folder.root}", f"paths.scratch={scratch}")
        assert done.returncode == 0, done.stderr
        self.printed = done.stdout
        self.job = cluster.adopt(int(next(record.job for record in jobs_of(self.folder, RUN))))

    @property
    def state(self) -> JobState:
        return self.cluster.state(self.job)

    def out(self, node: int = 0) -> str:
        """What the job's task of that node said; across restarts."""
        return "".join(path.read_text() for path in sorted(self.folder.jobs.glob(f"{self.job}_{node}_log.*")))

    def events(self, *kinds: str, attempt: int | None = None) -> list[Event]:
        """Facts noted so far, by time."""
        if not self.folder.events_folder.is_dir():
            return []
        return [
            event
            for event in read_events(self.folder.events_folder)
            if (not kinds or event.kind in kinds) and (attempt is None or event.attempt == attempt)
        ]

    def wait_until(self, true: Callable[[], object], what: str, within_s: float = 120.0) -> None:
        def there() -> bool:
            assert self.state not in OVER or true(), f"the job ended ({self.state.name}) before {what}:\n{self.out()}"
            return bool(true())

        wait_for(there, f"{what}\n{self.out()}", within_s, every_s=0.2)

    def wait_event(self, kind: str, attempt: int | None = None, after: float = 0.0, within_s: float = 120.0) -> Event:
        """The first event of `kind` in that attempt, later than `after`."""

        def found() -> list[Event]:
            return [event for event in self.events(kind, attempt=attempt) if event.time > after]

        self.wait_until(found, f"event {kind}", within_s)
        return found()[0]

    def in_mid_run(self, attempt: int = 1) -> None:
        """One update is made, executions for the next are running; by status.json, as events reach the disk late."""

        def there() -> bool:
            status = read_status(self.folder.status)
            return status is not None and status.attempt == attempt and status.update >= 1 and _samples(status)

        self.wait_until(there, "an update made, executions running and tokens sampled")

    def wait_over(self, within_s: float = 180.0) -> JobState:
        """The job is at its end and no process of it lives on any node."""
        state = self.cluster.wait_for(self.job, *OVER, within_s=within_s)
        wait_for(lambda: not self.processes(), "the end of every process of the run", every_s=0.2)
        return state

    def processes(self) -> set[int]:
        """Living processes that name the run folder, on all nodes: they are this machine's. Without srun, which is SLURM's affair: cut off from its
        controller it stays."""
        found, mark = set(), str(self.folder.root).encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes()
                if mark in argv and not argv.split(b"\0")[0].endswith(b"srun"):
                    found.add(int(pid))
            except OSError:  # gone
                continue
        return found

    @property
    def first_host(self) -> str:
        """Node of the newest attempt's supervisor-0."""
        return str(self.events("job_started")[-1].fields["hosts"][0])

    @property
    def last_host(self) -> str:
        return str(self.events("job_started")[-1].fields["hosts"][-1])

    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return dict(json.loads(self.folder.summary.read_text()))

    def end(self, attempt: int) -> dict[str, Any]:
        """attempts/<n>/end.json."""
        return dict(json.loads((self.folder.attempts / str(attempt) / "end.json").read_text()))

    def consumed(self) -> list[str]:
        """As `consumed`, of this run."""
        return consumed(self.folder)

    def expect_whole(self, attempts: int, updates: int = UPDATES) -> None:
        """All updates, made from tokens; nothing trained twice, nothing lost."""
        summary = self.summary()
        assert summary["tokens"]["trained"] > 0 and not summary["executions"]["infra_error"], summary["executions"]
        assert (summary["updates"], summary["exit_code"], summary["attempts"]) == (updates, 0, attempts), summary["reason"]
        assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0), summary["tokens"]
        assert not self.events("token_fault")
        # An end counts once its record is written. A controller that is killed before it has noted it says so to nobody.
        assert first_names(unended(self.events())) <= set(self.consumed())
        assert len(self.consumed()) == len(set(self.consumed())) == updates * 3 * 4


def _samples(status: Status) -> bool:
    return status.executions.get("running", 0) > 0 and status.totals.get("sampled_train", 0) > 0
