"""What passes between the ranks of one engine, and what the leading thread makes of it. The wire is a pair of queues here."""

import queue
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.embedded import jobs, worker
from gyre_hpc.engines.embedded.build import new_core, new_forward
from gyre_hpc.engines.embedded.core import EngineCore
from gyre_hpc.engines.embedded.turns import FollowerTurns, LeaderTurns, Turn
from gyre_hpc.engines.embedded.worker import Worker
from gyre_hpc.engines.request import Request, parse_generate
from gyre_hpc.errors import CellLost
from gyre_hpc.protocol.identity import Version
from tests.fakes.engine_rig import MODEL, PARAMS, V0


class Wire:
    """Stands for TensorRanks: one rank's end."""

    def __init__(self, rank: int, inbox: "queue.Queue[torch.Tensor]", outbox: "queue.Queue[torch.Tensor]") -> None:
        self.rank, self._inbox, self._outbox = rank, inbox, outbox

    def others(self) -> tuple[int, ...]:
        return (1 - self.rank,)

    def send(self, x: torch.Tensor, rank: int) -> None:
        self._outbox.put(x.clone())

    def receive_(self, x: torch.Tensor, rank: int, deadline_s: float | None = None) -> torch.Tensor:
        try:
            return x.copy_(self._inbox.get(timeout=5))
        except queue.Empty:
            raise CellLost(f"rank {rank} took no part") from None


def pair() -> tuple[LeaderTurns, FollowerTurns]:
    to_leader, to_follower = queue.Queue[torch.Tensor](), queue.Queue[torch.Tensor]()
    leader: Any = Wire(0, to_leader, to_follower)
    follower: Any = Wire(1, to_follower, to_leader)
    return LeaderTurns(leader), FollowerTurns(follower)


def request(ids: list[int]) -> Request:
    return parse_generate(f'{{"input_ids": {ids}}}'.encode(), MODEL.max_context, MODEL.vocab_size)


@given(lengths=st.lists(st.integers(1, 2000), max_size=4), trace=st.integers(-(2**63), 2**63 - 1), is_last=st.booleans())
def test_turns_of_any_length_arrive_as_they_were_sent(lengths: list[int], trace: int, is_last: bool):
    leader, follower = pair()
    told = [
        Turn(tuple(jobs.Add(n, request([n] * length)) for n, length in enumerate(lengths)), trace, is_last),
        Turn((jobs.Prepare(Version(0, 1)), jobs.Sleep(), jobs.Abort(1, "why", "cell-1")), trace),
    ]
    for turn in told:
        leader.tell(turn)
    assert [follower.hear() for _ in told] == told


def test_results_come_back_typed_and_errors_with_the_rank():
    leader, follower = pair()
    follower.answer((3, 4))
    assert leader.hear(jobs.Sleep()) == ([(3, 4)], [])
    follower.answer(None, "KeyError: 0.1")
    assert leader.hear(jobs.Prepare(V0)) == ([], ["rank 1: KeyError: 0.1"])


def new_worker(turns: LeaderTurns) -> tuple[Worker, EngineCore, list[BaseException]]:
    config, failures = EngineConfig(kv_tokens=2048, page_size=8), list[BaseException]()
    core = new_core(config, new_forward(config, MODEL, None), PARAMS.__getitem__, decode=None)
    return Worker(core, turns=turns, deliver=lambda pieces: None, on_failure=failures.append), core, failures


def answer(follower: FollowerTurns, turns: int, *answers: tuple[Any, str]) -> threading.Thread:
    """Take part in so many turns, without a core: answer every EachRank job in order."""

    def run() -> None:
        left = list(answers)
        for _ in range(turns):
            for job in follower.hear().jobs:
                if isinstance(job, jobs.EachRank):
                    follower.take()
                    follower.answer(*left.pop(0))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_every_rank_gives_its_figures():
    leader, follower = pair()
    threads, (leading, _, failures) = answer(follower, 1, (None, ""), ((7, 8), "")), new_worker(leader)
    asked = [leading.ask(jobs.Prepare(V0)), leading.ask(jobs.Wake(V0))]
    leading.start()
    (_, own), other = asked[1].result(10)
    assert own > 0 and other == (7, 8) and not failures
    threads.join(10)
    leading.close()


def test_what_only_another_rank_refuses_is_raised_here_and_breaks_nothing():
    leader, follower = pair()
    threads, (leading, core, failures) = answer(follower, 1, (None, "KeyError: 0.0")), new_worker(leader)
    asked = leading.ask(jobs.Prepare(V0))
    leading.start()
    with pytest.raises(RuntimeError, match=r"rank 1: KeyError: 0\.0"):
        asked.result(10)
    threads.join(10)
    leading.close()
    assert not failures and core.memory is None


def test_ranks_that_did_not_do_the_same_break_the_engine():
    leader, follower = pair()
    threads, (leading, _, failures) = answer(follower, 1, (None, ""), (None, "MemoryError: no room"), ((0, 0), "")), new_worker(leader)
    asked = [leading.ask(jobs.Prepare(V0)), leading.ask(jobs.Wake(V0)), leading.ask(jobs.Sleep())]
    leading.start()
    with pytest.raises(RuntimeError, match="rank 1: MemoryError"):
        asked[1].result(10)
    with pytest.raises(RuntimeError, match="compute thread failed"):
        asked[2].result(10)
    threads.join(10)
    leading.close()
    (failure,) = failures
    assert "Wake failed on some ranks only: rank 1: MemoryError: no room" in str(failure)


def test_an_idle_leader_is_heard_so_that_its_followers_know_it_lives(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "BEAT_S", 0.01)
    leader, follower = pair()
    leading, _, failures = new_worker(leader)
    leading.start()
    assert [follower.hear() for _ in range(3)] == [Turn((), 0)] * 3
    leading.close()
    while not (turn := follower.hear()).is_last:
        assert turn == Turn((), 0)
    assert not failures
