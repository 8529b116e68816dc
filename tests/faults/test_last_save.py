"""A run whose updates are in no checkpoint goes on from its newest version after an orderly stop: nothing is made twice."""

import signal
from pathlib import Path

import pytest

from gyre_hpc.machines.supervision.settings import STOPPED
from gyre_hpc.train.checkpoint_folder import newest_whole
from tests.fakes.whole_run import REHEARSAL, WholeRun

UPDATES = 6
RUN = (*REHEARSAL, f"algo.updates={UPDATES}", "checkpoint.before_publish=false", "checkpoint.every=100")
pytestmark = pytest.mark.timeout(240)


def published(run: WholeRun, attempt: int) -> list[int]:
    """Steps of the versions that cells went over to, in their order."""
    return [int(event.fields["version"].partition(".")[2]) for event in run.events("version_published", attempt=attempt)]


def test_after_an_orderly_stop_the_next_attempt_begins_at_the_newest_version(tmp_path: Path) -> None:
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("version_published", lambda event: str(event.fields["version"]).endswith(".2"))
        assert newest_whole(run.folder.checkpoints) is None
        run.process.send_signal(signal.SIGTERM)
        assert run.wait_end() == STOPPED, run.printed
        newest = newest_whole(run.folder.checkpoints)
        reached = max(published(run, 1))
        assert newest is not None and int(newest.name.partition(".")[2]) == reached >= 2
        assert run.events("last_save")[-1].fields["waits_s"] == 0.0
    with WholeRun(tmp_path, f"resume={run.folder.root}", f"paths.cache={tmp_path / 'cache'}") as again:
        assert again.wait_end() == 0, again.printed
        assert published(again, 2)[0] == reached
        made = [event.fields["update"] for event in again.events("applied")]
        assert made == list(range(UPDATES)), "each update once, over both attempts"
        consumed = again.consumed()
        assert len(consumed) == len(set(consumed)) == UPDATES * 12, "the last update is saved, whatever checkpoint.every says"


def test_a_killed_run_makes_again_what_no_checkpoint_holds(tmp_path: Path) -> None:
    """The control: what the stop saves is lost without it."""
    with WholeRun(tmp_path, *RUN) as run:
        run.wait_event("version_published", lambda event: str(event.fields["version"]).endswith(".2"))
        run.kill("supervisor")
        run.wait_end()
    assert newest_whole(run.folder.checkpoints) is None
