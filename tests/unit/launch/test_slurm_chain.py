"""Every way an attempt on SLURM ends, and what follows it."""

import pytest

from gyre_hpc.config.schema import Chain
from gyre_hpc.launch.slurm.chain import Ending, Fate, Next, cause, ends_at, fate_of, follow
from gyre_hpc.machines.supervision import NODE_LOST, REFUSED, STOPPED, SUPERSEDED


def ending(code: int, signal: str = "", fate: Fate = Fate.running, fruitless: int = 0, allocations: int = 1) -> Ending:
    return Ending(code=code, signal=signal, fate=fate, fruitless=fruitless, allocations=allocations)


@pytest.mark.parametrize(
    ("ended", "next", "why"),
    [
        (ending(0), Next.end, "finished"),
        (ending(0, "SIGUSR2"), Next.end, "finished"),
        (ending(SUPERSEDED), Next.leave, "newer attempt"),
        (ending(SUPERSEDED, "SIGTERM", Fate.cancelled), Next.leave, "newer attempt"),
        (ending(REFUSED), Next.end, "configuration"),
        (ending(STOPPED), Next.end, "stopped"),
        (ending(1), Next.end, "exit code 1"),
        (ending(STOPPED, "SIGUSR2"), Next.requeue, "SIGUSR2"),
        (ending(STOPPED, "SIGTERM", Fate.preempted), Next.requeue, "SIGTERM"),
        (ending(1, "SIGTERM", Fate.preempted), Next.requeue, "SIGTERM"),
        (ending(STOPPED, "SIGTERM", Fate.cancelled), Next.end, "cancelled"),
        (ending(STOPPED, "SIGTERM", Fate.requeued), Next.leave, "by itself"),
        (ending(1, "", Fate.requeued), Next.leave, "by itself"),
        (ending(STOPPED, "SIGTERM", Fate.unknown), Next.requeue, "SIGTERM"),
        (ending(NODE_LOST), Next.requeue, "node of the core"),
        (ending(-9), Next.requeue, "supervisor died"),
        (ending(-9, fruitless=1), Next.requeue, "supervisor died"),
        (ending(-9, fruitless=2), Next.end, "2 attempts in a row"),
        (ending(STOPPED, "SIGUSR2", fruitless=2), Next.end, "2 attempts in a row"),
        (ending(STOPPED, "SIGUSR2", Fate.preempted, fruitless=2), Next.requeue, "SIGUSR2"),
        (ending(STOPPED, "SIGUSR2", allocations=9), Next.requeue, "SIGUSR2"),
        (ending(STOPPED, "SIGUSR2", allocations=10), Next.end, "launch.chain_limit=10"),
    ],
)
def test_what_follows_an_attempt(ended: Ending, next: Next, why: str):
    what, reason = follow(ended, Chain.requeue, limit=10)
    assert what is next and why in reason


@pytest.mark.parametrize("ended", [ending(STOPPED, "SIGUSR2"), ending(NODE_LOST), ending(-9)])
def test_a_successor_waits_already_and_no_chain_ends_there(ended: Ending):
    assert follow(ended, Chain.successor, limit=10)[0] is Next.leave
    assert follow(ended, Chain.none, limit=10) == (Next.end, "launch.chain=none")


HOUR = "TimeLimit=01:00:00"


@pytest.mark.parametrize(
    ("said", "fate"),
    [
        ("", Fate.unknown),
        ("JobState=RUNNING Restarts=1 ExitCode=0:0 PreemptTime=None", Fate.running),
        ("JobState=RUNNING Restarts=1 ExitCode=0:0", Fate.running),
        ("JobState=RUNNING Restarts=1 ExitCode=0:0 PreemptTime=2026-11-30T06:45:49", Fate.preempted),
        ("JobState=COMPLETING Restarts=2 Reason=None ExitCode=0:0", Fate.requeued),
        ("JobState=PENDING Restarts=1 Reason=BeginTime ExitCode=0:0", Fate.requeued),
        ("JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:15 PreemptTime=None", Fate.cancelled),
        ("JobState=CANCELLED Restarts=1 Reason=None ExitCode=0:0", Fate.cancelled),
        ("JobState=COMPLETING Restarts=1 Reason=TimeLimit ExitCode=0:15", Fate.timed_out),
        ("JobState=COMPLETING Restarts=1 Reason=TimeLimit ExitCode=0:0", Fate.timed_out),
        ("JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:0", Fate.unknown),
        (f"JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:0 {HOUR} StartTime=1000 EndTime=1009", Fate.cancelled),  # its script lives
        (f"JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:0 {HOUR} StartTime=1000 EndTime=4600", Fate.unknown),
        (f"JobState=COMPLETING Restarts=1 Reason=None ExitCode=1:0 {HOUR} StartTime=1000 EndTime=1009", Fate.unknown),  # its script failed
        (f"JobState=COMPLETING Restarts=1 Reason=NodeDown ExitCode=0:0 {HOUR} StartTime=1000 EndTime=1009", Fate.unknown),
        ("JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:0 TimeLimit=UNLIMITED StartTime=1000 EndTime=1009", Fate.unknown),
    ],
)
def test_what_slurm_does_with_a_job_is_read_from_its_record(said: str, fate: Fate):
    """As SLURM 22.05 was seen to say it; the attempt is the job's second start."""
    assert fate_of(dict(word.split("=", 1) for word in said.split()), restarts=1) is fate


@pytest.mark.parametrize(
    ("said", "end"),
    [
        ("JobState=RUNNING EndTime=4600", 4600.0),  # at the end of its grace time, where it is preempted
        ("JobState=COMPLETING EndTime=4600", None),  # that is when its end began
        ("JobState=RUNNING EndTime=Unknown", None),
        ("JobState=RUNNING", None),
    ],
)
def test_the_end_of_a_job_is_what_slurm_says_of_one_that_runs(said: str, end: float | None):
    assert ends_at(dict(word.split("=", 1) for word in said.split())) == end


def test_a_stop_that_a_person_asked_for_is_none_of_the_signal_that_comes_meanwhile():
    asked = Ending(code=STOPPED, signal="SIGTERM", fate=Fate.timed_out, fruitless=0, allocations=1, is_asked=True)
    assert follow(asked, Chain.requeue, limit=10) == (Next.end, "the run was stopped")


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (ending(STOPPED, "SIGUSR2"), "told to save (SIGUSR2)"),
        (ending(STOPPED, "SIGUSR2", Fate.preempted), "preempted (SIGUSR2)"),
        (ending(STOPPED, "SIGUSR2", Fate.timed_out), "the time limit came (SIGUSR2)"),
        (ending(STOPPED, "SIGTERM", Fate.unknown), "told to end (SIGTERM)"),
        (ending(NODE_LOST), "a node of the core was lost"),
    ],
)
def test_what_a_signal_meant_is_told_with_its_name(ended: Ending, told: str):
    assert cause(ended) == told


@pytest.mark.parametrize("chain", [Chain.requeue, Chain.successor])
def test_a_time_limit_that_comes_untold_ends_no_chain(chain: Chain):
    what, why = follow(ending(-9, "SIGTERM", Fate.timed_out), chain, limit=10)
    assert what is (Next.requeue if chain is Chain.requeue else Next.leave) and "time limit" in why
