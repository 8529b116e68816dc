"""Two ranks of a cell, as real gloo processes, train like one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.models.qwen3_config import from_model_config
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.train.cell_ranks import DataParallel
from tests.contracts.training_data import VOCAB, config
from tests.unit.train.cell_rank import run

ROOT = Path(__file__).parents[3]
MODEL = from_model_config(config().model, VOCAB)
LENGTHS = [100, 450, 450, 30]


@given(lengths=st.lists(st.integers(1, 500), max_size=30), world=st.integers(1, 4))
def test_every_sequence_goes_to_exactly_one_rank(lengths, world):
    shares = [DataParallel(TensorRanks(rank, world), MODEL).share(lengths) for rank in range(world)]
    assert sorted(index for share in shares for index in share) == list(range(len(lengths)))


@given(lengths=st.lists(st.integers(1, 500), min_size=1, max_size=30), world=st.integers(1, 4))
def test_no_rank_has_more_than_one_sequence_too_many(lengths, world):
    loads = [sum(lengths[i] for i in DataParallel(TensorRanks(rank, world), MODEL).share(lengths)) for rank in range(world)]
    assert max(loads) - min(loads) <= max(lengths)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    lengths = ",".join(map(str, LENGTHS))
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.unit.train.cell_rank",
                str(rank),
                "2",
                str(folder / "meeting"),
                lengths,
                str(folder / f"{rank}.pt"),
            ],
            cwd=ROOT,
        )
        for rank in (0, 1)
    ]
    try:
        assert [process.wait(timeout=60) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(params=[1, 0], ids=["data_parallel", "tensor_parallel"])
def ranks(both, request):
    return [of_rank[request.param] for of_rank in both]


@pytest.fixture(scope="module")
def alone():
    return run(0, 1, LENGTHS, 0)


@pytest.mark.parametrize("what", ["sum", "with_hand_in", "updated", "warm"])
def test_two_ranks_equal_one(ranks, alone, what):
    """D1: one denominator, though the ranks' shares differ."""
    assert torch.equal(ranks[0][what], ranks[1][what])
    difference = (ranks[0][what] - alone[what]).norm() / alone[what].norm()
    assert difference < 1e-5


def test_a_hand_in_counts_once_in_a_cell_of_two_ranks(ranks):
    assert torch.allclose(ranks[1]["with_hand_in"] - ranks[1]["sum"], torch.ones(()), atol=1e-4)


def test_facts_and_metrics_are_the_whole_cell_s_on_every_rank(ranks, alone):
    for got in ranks:
        for mine, expected in zip(got["facts"], alone["facts"], strict=True):
            assert mine == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert got["metrics"] == pytest.approx(alone["metrics"], rel=1e-4)
        assert got["fitted"] == pytest.approx(alone["fitted"], rel=1e-4)
