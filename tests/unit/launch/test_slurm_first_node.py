"""The end of an attempt on its first node: what its record says, and that nothing is ordered twice or left behind."""

import json
from pathlib import Path

import msgspec
import pytest

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim
from gyre_hpc.launch.holding import Stop
from gyre_hpc.launch.slurm import first_node
from gyre_hpc.launch.slurm.chain import Ending, Fate, Next
from gyre_hpc.launch.slurm.task import Task
from gyre_hpc.launch.slurm.told import Told
from gyre_hpc.machines.supervision import STOPPED
from gyre_hpc.observability.events import read_events
from gyre_hpc.protocol.people import Answer
from gyre_hpc.supervisor.attempts import end_of
from tests.fakes.slurm_commands import Site

TASK = Task(job="7", restarts=0, node=0, hosts=("n1", "n2"))


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    folder = RunFolder(tmp_path / "run")
    folder.events_folder.mkdir(parents=True)
    end_of(folder, 1).parent.mkdir(parents=True)
    return Claim(folder=folder, attempt=1)


def left(claim: Claim, reason: str) -> None:
    """By its supervisor."""
    end_of(claim.folder, 1).write_text(json.dumps({"exit_code": STOPPED, "reason": reason, "time": 5.0}))


def completed(claim: Claim, code: int, signal: str, fate: Fate) -> dict[str, object]:
    ending = Ending(code=code, signal=signal, fate=fate, fruitless=0, allocations=1)
    first_node._complete_end(claim, ending, Next.requeue, "why")
    return dict(json.loads(end_of(claim.folder, 1).read_bytes()))


@pytest.mark.parametrize(
    ("reason", "signal", "told"),
    [
        ("SIGTERM", "SIGUSR2", "told to save (SIGUSR2)"),
        ("gyre stop by me", "SIGUSR2", "gyre stop by me"),
        ("SIGTERM", "", "SIGTERM"),  # somebody told the supervisor itself
    ],
)
def test_the_record_of_an_end_says_what_the_signal_meant(claim: Claim, reason: str, signal: str, told: str) -> None:
    left(claim, reason)
    end = completed(claim, STOPPED, signal, Fate.running)
    assert end == {"exit_code": STOPPED, "reason": told, "time": 5.0, "next": "requeue", "why": "why"}


def test_a_supervisor_that_was_killed_has_an_end_too(claim: Claim) -> None:
    end = completed(claim, -9, "SIGTERM", Fate.timed_out)
    assert (end["exit_code"], end["reason"], end["next"]) == (137, "its supervisor ended with -9", "requeue")


@pytest.mark.parametrize(
    ("reason", "is_asked"), [("SIGTERM", False), ("parent closed the pipe", False), ("gyre stop by me", True), ("", False)]
)
def test_a_persons_stop_is_told_from_a_signals_by_the_record(claim: Claim, reason: str, is_asked: bool) -> None:
    if reason:
        left(claim, reason)
    assert first_node._is_asked(claim) is is_asked


@pytest.mark.parametrize(("restarts", "asker"), [(1, ""), (0, "6")])
def test_a_start_that_nobody_decided_does_not_undo_a_persons_stop(claim: Claim, restarts: int, asker: str) -> None:
    claim.folder.commands.mkdir()
    claim.folder.answer("1-a").write_bytes(msgspec.json.encode(Answer(1, True, "the run ends", kind="stop")))
    task = Task(job="7", restarts=restarts, node=0, hosts=("n1",))
    with pytest.raises(UserError, match="a person stopped attempt 1.*resume="):
        first_node._hold_back(claim.folder, task, asker)
    (told,) = read_events(claim.folder.events_folder)
    assert (told.kind, told.attempt, told.fields["next"], told.fields["exit_code"]) == ("job_ended", 2, "end", 2)
    first_node._hold_back(claim.folder, TASK, "")


@pytest.mark.parametrize(
    ("what", "is_put_back", "successor", "orders"),
    [
        (Next.requeue, False, "", ["scontrol requeue 7"]),
        (Next.requeue, True, "", []),
        (Next.end, True, "", ["scancel 7"]),  # it came to its end within KillWait
        (Next.end, False, "8", ["scancel 8"]),
        (Next.end, False, "", []),
        (Next.leave, False, "8", []),
        (Next.leave, True, "", ["scancel 7"]),  # a newer attempt lives in another job
    ],
)
def test_what_was_ordered_at_the_signal_is_not_ordered_again_and_undone_where_nothing_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claim: Claim, what: Next, is_put_back: bool, successor: str, orders: list[str]
) -> None:
    site = Site(tmp_path, monkeypatch)
    told = Told(claim, TASK, Stop(), successor=successor, goes_on=True)
    told.is_put_back = is_put_back
    first_node._go_on(what, claim, TASK, told)
    assert site.heard() == orders
