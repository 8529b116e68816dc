"""What a cell says of itself: a broken engine and a snapshot that one rank lacks make it useless, and it says so."""

import asyncio
from typing import Any

import pytest

from gyre_hpc.cell import commands
from gyre_hpc.cell.crew import Crew
from gyre_hpc.cell.look import Looker
from gyre_hpc.cell.rank import Rank
from gyre_hpc.config.schema import Config, TrainerConfig, TrainerKind
from gyre_hpc.engines.scripted import ScriptedEngine
from gyre_hpc.errors import CellLost
from gyre_hpc.machines.cell.actions import Figures, Measure
from gyre_hpc.protocol.identity import Version
from gyre_hpc.train import create_trainer
from gyre_hpc.transport.snapshot_store import HostSnapshotStore

V0, V1 = Version(0, 0), Version(0, 1)


class Follower:
    """The channel to a second rank, which is always well and has `snapshots`."""

    def __init__(self, snapshots: tuple[Version, ...]) -> None:
        self._rank, self._snapshots, self._answers = rank(1)[0], snapshots, list[bytes]()

    def send(self, rank: int, data: bytes, deadline_s: float) -> None:
        answer = self._rank.answer(self._rank.do(commands.decode_command(data)))
        told = commands.Answer(
            memory=answer.memory, pid=answer.pid, cpu_s=answer.cpu_s, groups_built=answer.groups_built, snapshots=self._snapshots
        )
        self._answers += [commands.TAKEN, commands.encode(told)]

    def receive(self, rank: int, deadline_s: float) -> bytes:
        return self._answers.pop(0)


def rank(number: int) -> tuple[Rank, HostSnapshotStore]:
    store = HostSnapshotStore()
    config = Config(trainer=TrainerConfig(kind=TrainerKind.timed))
    return Rank(number, create_trainer(config, vocab_size=64, store=store, rank=number, world=2), store), store


def look(crew: Crew, store: HostSnapshotStore, failure: str | None = None, pids: tuple[int, ...] = ()) -> Figures:
    class Engine(ScriptedEngine):
        def failure(self) -> str | None:
            return failure

        def pids(self) -> tuple[int, ...]:
            return pids

    engine: Any = Engine(lambda prompt, key: [], run_token="t", host="127.0.0.1", max_context=64, vocab_size=64)
    try:
        return asyncio.run(Looker(crew, engine, store).measure("", Measure(update=-1, deadline_s=5), lambda item: None))
    finally:
        crew.close()


def test_a_broken_engine_is_told_instead_of_figures():
    own, store = rank(0)
    with pytest.raises(CellLost, match="the compute thread failed"):
        look(Crew(own, 1, None), store, "the compute thread failed: no memory")


@pytest.mark.parametrize(("there", "expected"), [((V0, V1), (V0, V1)), ((V0,), (V0,)), ((), ())])
def test_a_snapshot_counts_when_every_rank_has_it(there: tuple[Version, ...], expected: tuple[Version, ...]):
    own, store = rank(0)
    for version in (V0, V1):
        own.trainer.init(version)
    assert look(Crew(own, 2, Follower(there)), store).snapshots == expected


def test_a_rank_whose_part_of_the_engine_failed_says_so():
    own, _ = rank(1)

    class Failed:
        failure = RuntimeError("other tokens than its leader")

    failed: Any = Failed()
    own.engine = failed
    with pytest.raises(RuntimeError, match="its part of the engine failed.*other tokens"):
        own.do(commands.Look())


class Server:
    """The part of the cell's server that a rank holds."""

    def __init__(self, why: str | None = None) -> None:
        self._why = why

    def failure(self) -> str | None:
        return self._why

    def pids(self) -> tuple[int, ...]:
        return (11, 12)


def test_the_server_of_the_cell_is_shown_beside_its_ranks():
    own, store = rank(0)
    figures = look(Crew(own, 1, None), store, pids=(7, 8))
    assert (figures.pids, figures.engine_pids) == ((own.answer(None).pid,), (7, 8))


def test_a_part_of_the_server_that_another_node_holds_is_shown_and_its_loss_is_told():
    other: Any = rank(1)[0]
    other.server = Server()
    answer = other.answer(other.do(commands.Look()))
    assert commands.decode_answer(commands.encode(answer)).server_pids == (11, 12)
    other.server = Server("SGLang's server was killed")
    with pytest.raises(RuntimeError, match="was killed"):
        other.do(commands.Look())
