"""One rank of a cell falls silent (faults.md C2, C7): the leader says so, by name, within its deadline, and nobody hangs."""

import contextlib
import http.client
import json
import os
import queue
import signal
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from gyre_hpc.cell import commands
from gyre_hpc.cell import crew as crew_module
from gyre_hpc.cell import follow as follow_module
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.follow import follow
from gyre_hpc.cell.rank import Rank
from gyre_hpc.config.schema import ClusterConfig, Config, TrainerConfig, TrainerKind, TransportConfig
from gyre_hpc.errors import CellLost
from gyre_hpc.protocol.identity import Role, Version
from gyre_hpc.protocol.to_batch import CellState
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore
from tests.fakes.cell_stage import TOKEN, Stage, tiny_config
from tests.fakes.live_run import descendants, wait_dead, wait_for

V0 = Version(0, 0)


class Pipes:
    """A channel between threads; a rank in `deaf` hears nothing."""

    def __init__(self, world: int, deaf: set[int]) -> None:
        self.deaf = deaf
        self._to_leader = {rank: queue.Queue[bytes]() for rank in range(1, world)}
        self._to_rank = {rank: queue.Queue[bytes]() for rank in range(1, world)}

    def send(self, rank: int, data: bytes, deadline_s: float) -> None:
        if rank not in self.deaf:
            self._to_rank[rank].put(data)

    def receive(self, rank: int, deadline_s: float) -> bytes:
        return take(self._to_leader[rank], rank, deadline_s)

    def of(self, number: int) -> "FollowerEnd":
        return FollowerEnd(self._to_rank[number], self._to_leader[number])


class FollowerEnd:
    def __init__(self, inbox: "queue.Queue[bytes]", outbox: "queue.Queue[bytes]") -> None:
        self._inbox, self._outbox = inbox, outbox

    def send(self, rank: int, data: bytes, deadline_s: float) -> None:
        self._outbox.put(data)

    def receive(self, rank: int, deadline_s: float) -> bytes:
        return take(self._inbox, rank, deadline_s)


def take(inbox: "queue.Queue[bytes]", rank: int, deadline_s: float) -> bytes:
    try:
        return inbox.get(timeout=deadline_s)
    except queue.Empty:
        raise CellLost(f"rank {rank} did not answer within {deadline_s:g} s") from None


def timed_rank(number: int) -> Rank:
    config = Config(trainer=TrainerConfig(kind=TrainerKind.timed))
    store = HostSnapshotStore()
    return Rank(number, create_trainer(config, vocab_size=64, store=store, rank=number, world=3), store)


def crew_of(world: int, deaf: set[int], pipes: Pipes | None = None) -> tuple[Crew, list[threading.Thread]]:
    pipes = pipes or Pipes(world, deaf)
    threads = [
        threading.Thread(target=follow, args=(timed_rank(number), pipes.of(number)), daemon=True)
        for number in range(1, world)
        if number not in deaf
    ]
    for thread in threads:
        thread.start()
    return Crew(timed_rank(0), world, pipes), threads


def test_every_rank_acknowledges_a_command_with_its_memory():
    crew, threads = crew_of(3, set())
    crew.run(commands.Init(V0), 10)
    crew.run(commands.Wake(V0, False, "", 10), 10)
    assert [answer.memory.rank for answer in crew.answers] == [0, 1, 2]
    assert all(answer.memory.free > 0 for answer in crew.answers)
    crew.run(commands.End(), 10)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_a_rank_that_ignores_sleep_is_named():
    crew, _ = crew_of(3, {2})
    with pytest.raises(CellLost, match="rank 2"):
        crew.run(commands.Sleep(False), 0.2)
    with pytest.raises(CellLost, match="rank 2"):
        crew.run(commands.Look(), 10)


class SilentAfterReceipt(Pipes):
    """Its ranks take commands, and then nothing is heard of them."""

    def receive(self, rank: int, deadline_s: float) -> bytes:
        data = super().receive(rank, deadline_s)
        return data if data == commands.TAKEN else super().receive(rank, deadline_s)


def test_a_rank_that_falls_silent_at_work_is_named_long_before_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crew_module, "SILENCE_S", 0.2)
    crew, _ = crew_of(2, set(), SilentAfterReceipt(2, set()))
    with pytest.raises(CellLost, match="rank 1"):
        crew.run(commands.Look(), 3600)


def test_a_rank_that_works_longer_than_the_silence_allowed_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow_module, "BEAT_S", 0.02)
    is_free, heard = threading.Event(), list[bytes]()

    class Counting(Pipes):
        def receive(self, rank: int, deadline_s: float) -> bytes:
            heard.append(super().receive(rank, deadline_s))
            if heard.count(commands.WORKING) == 5:
                is_free.set()
            return heard[-1]

    monkeypatch.setattr(Rank, "do", lambda rank, command: rank.number and is_free.wait(60))
    crew, _ = crew_of(2, set(), Counting(2, set()))
    crew.run(commands.Look(), 60)
    assert heard[0] == commands.TAKEN and set(heard[1:-1]) == {commands.WORKING} and len(heard) >= 7


def test_an_error_on_a_follower_names_the_rank_and_the_reason():
    crew, threads = crew_of(2, set())
    crew.own.trainer.init(V0)
    with pytest.raises(RuntimeError, match="rank 1: TransferFailed"):
        crew.run(commands.Wake(V0, False, "http://127.0.0.1:9", 1), 10)
    crew.run(commands.End(), 10)
    threads[0].join(10)


@pytest.mark.timeout(180)
def test_a_stopped_rank_is_reported_by_name(tmp_path: Path):
    with Stage(tmp_path, tiny_config(cluster=ClusterConfig(cells=1, ranks_per_cell=2))) as stage:
        stage.start("cell-0")
        stage.wait_registered("cell-0")
        stage.order("cell-0", term=1, role=Role.rollout, is_core=True, version=V0, update=0)
        report = stage.until("cell-0", lambda report: report.state is CellState.rollout and len(report.pids) == 2, "serving")
        follower = report.pids[1]
        assert follower in descendants(stage.processes["cell-0"].pid)
        os.kill(follower, signal.SIGSTOP)
        stage.order("cell-0", term=2, role=Role.train, is_core=True, version=V0, update=0)
        report = stage.until("cell-0", lambda report: report.error or report.broken, "an error", within_s=120)
        assert "rank 1" in report.error + report.broken
        assert report.state is not CellState.train
        wait_for(lambda: stage.report("cell-0").seq > report.seq, "heartbeats go on")


def sharing_config() -> Config:
    """Two ranks share a model; its calls can be long enough to be struck in the middle."""
    config = tiny_config(cluster=ClusterConfig(cells=1, ranks_per_cell=2), transport=TransportConfig(deadline_s=4.0))
    config.model.max_context, config.engine.kv_tokens = 4096, 4096
    return config


@contextlib.contextmanager
def begun_call(stage: Stage) -> Iterator[http.client.HTTPResponse]:
    """A call of 4,000 tokens that has given its first chunk."""
    url = urllib.parse.urlsplit(stage.report("cell-0").engine_url)
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    body = {"input_ids": [1, 2, 3], "stream": True, "sampling_params": {"max_new_tokens": 4000, "temperature": 1.0}}
    connection.request("POST", "/generate", json.dumps(body), {"Authorization": f"Bearer {TOKEN}"})
    with contextlib.closing(connection), connection.getresponse() as answer:
        assert answer.readline()
        yield answer


def serving(stage: Stage) -> tuple[int, ...]:
    """Start the cell; its ranks' pids once it serves."""
    stage.start("cell-0")
    stage.wait_registered("cell-0")
    stage.order("cell-0", term=1, role=Role.rollout, is_core=True, version=V0, update=0)
    return stage.until("cell-0", lambda report: report.state is CellState.rollout and len(report.pids) == 2, "serving").pids


@pytest.mark.timeout(180)
def test_a_rank_that_stops_in_the_middle_of_a_call_breaks_the_engine_and_is_named(tmp_path: Path):
    with Stage(tmp_path, sharing_config()) as stage:
        _, follower = serving(stage)
        with begun_call(stage) as answer:
            os.kill(follower, signal.SIGSTOP)
            report = stage.until("cell-0", lambda report: report.broken, "a broken cell", within_s=120)
            assert "rank 1" in report.broken
            assert b"rank 1 took no part within 4 s" in answer.read(), "the client is told and can go elsewhere"


@pytest.mark.timeout(180)
def test_a_rank_that_is_killed_in_the_middle_of_a_call_ends_the_cell_and_leaves_nobody_behind(tmp_path: Path):
    with Stage(tmp_path, sharing_config()) as stage:
        leader, follower = serving(stage)
        with begun_call(stage):
            os.kill(follower, signal.SIGKILL)
            assert stage.processes["cell-0"].wait(timeout=60) != 0
            wait_dead({leader, follower})


@pytest.mark.timeout(180)
def test_followers_of_a_leader_that_is_killed_do_not_outlive_it(tmp_path: Path):
    with Stage(tmp_path, sharing_config()) as stage:
        leader, follower = serving(stage)
        with begun_call(stage):
            os.kill(leader, signal.SIGKILL)
            wait_dead({leader, follower})
