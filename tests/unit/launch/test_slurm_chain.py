"""Every way an attempt on SLURM ends, and what follows it."""

import pytest

from gyre_hpc.config.schema import Chain
from gyre_hpc.launch.slurm.chain import Ending, Fate, Next, fate_of, follow
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
        ("JobState=COMPLETING Restarts=1 Reason=None ExitCode=0:0", Fate.unknown),
    ],
)
def test_what_slurm_does_with_a_job_is_read_from_its_record(said: str, fate: Fate):
    """As SLURM 22.05 was seen to say it; the attempt is the job's second start."""
    assert fate_of(dict(word.split("=", 1) for word in said.split()), restarts=1) is fate
