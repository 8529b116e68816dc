"""A node that lost the first one orders what follows, once, and only when that node is out of the job or shows no sign of life."""

from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Chain, Config
from gyre_hpc.launch.holding import Stop
from gyre_hpc.launch.slurm import survivor
from gyre_hpc.launch.slurm.chain import Next
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.protocol.people import Answer
from tests.fakes.slurm_commands import RUNNING, Site

TASK = Task(job="7", restarts=0, node=1, hosts=("n1", "n2"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(survivor, "_STILL_S", 0.05)
    monkeypatch.setattr(survivor, "_LOOK_EVERY_S", 0.01)
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run whose only attempt has brought nothing yet."""
    run = RunFolder(tmp_path / "run")
    run.jobs.mkdir(parents=True)
    (run.attempts / "1").mkdir(parents=True)
    return run


def chained(chain: Chain) -> Config:
    config = Config()
    config.launch.chain = chain
    return config


def test_it_puts_the_job_back_once_however_many_survive(site: Site, folder: RunFolder):
    first, second = (survivor.go_on(chained(Chain.requeue), folder, TASK, Stop()) for _ in range(2))
    assert first is not None and first[0] is Next.requeue and second is None
    assert site.heard() == ["scontrol requeue 7"]


@pytest.mark.parametrize("chain", [Chain.successor, Chain.none])
def test_where_nothing_is_put_back_the_job_is_ended(site: Site, folder: RunFolder, chain: Chain):
    """A successor waits for that; without one the job would hold its nodes for nothing."""
    assert survivor.go_on(chained(chain), folder, TASK, Stop()) is not None
    assert site.heard() == ["scancel 7"]


def test_a_crash_loop_is_not_put_back(site: Site, folder: RunFolder):
    (folder.attempts / "2").mkdir()
    ordered = survivor.go_on(chained(Chain.requeue), folder, TASK, Stop())
    assert ordered is not None and ordered[0] is Next.end and site.heard() == ["scancel 7"]


def test_a_run_that_a_person_stopped_before_its_first_node_was_lost_is_not_put_back(site: Site, folder: RunFolder):
    folder.commands.mkdir()
    folder.answer("1-a").write_bytes(msgspec.json.encode(Answer(1, True, "the run ends", kind="stop")))
    ordered = survivor.go_on(chained(Chain.requeue), folder, TASK, Stop())
    assert ordered == (Next.end, "the run was stopped") and site.heard() == ["scancel 7"]


def test_a_run_that_shows_signs_of_life_goes_on_without_this_node(site: Site, folder: RunFolder, monkeypatch: pytest.MonkeyPatch):
    stop, stamps = Stop(), iter(range(20))

    def newest(look: object) -> tuple[int, ...]:
        stamp = next(stamps, None)
        if stamp is None:
            stop.came = "SIGTERM"
        return (1, stamp or 0)

    monkeypatch.setattr(survivor._Look, "_newest", newest)
    assert survivor.go_on(chained(Chain.requeue), folder, TASK, stop) is None and not site.heard()


@pytest.mark.parametrize(("nodes", "is_out"), [("n[1-2]", False), ("n2", True), ("n[2-3]", True)])
def test_slurm_is_believed_when_it_took_the_first_node_out_of_the_job(nodes: str, is_out: bool):
    assert survivor.is_taken_out({"NodeList": nodes, "BatchHost": "n1"}) is is_out
    assert not survivor.is_taken_out({}), "it did not answer"


@pytest.mark.parametrize("said", [RUNNING.replace("Restarts=0", "Restarts=1"), RUNNING.replace("RUNNING", "COMPLETING"), ""])
def test_a_job_that_slurm_ends_already_or_does_not_know_is_left_alone(site: Site, folder: RunFolder, said: str):
    site.says(said)
    assert survivor.go_on(chained(Chain.requeue), folder, TASK, Stop()) is None and not site.heard()


def test_what_one_could_not_order_another_may(site: Site, folder: RunFolder):
    site.says(RUNNING, order_fails=True)
    with pytest.raises(OSError, match="scontrol failed"):
        survivor.go_on(chained(Chain.requeue), folder, TASK, Stop())
    site.says(RUNNING)
    assert survivor.go_on(chained(Chain.requeue), folder, TASK, Stop()) is not None
    assert site.heard() == ["scontrol requeue 7"]
