"""Parts of a model: together they are the whole, each once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.errors import UserError
from gyre_hpc.models.parameters import parameter_shapes, random_parameters
from gyre_hpc.models.qwen3 import forward
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.sharding import Shard, Split, bounds, join, split_of


@st.composite
def models(draw) -> tuple[Qwen3Config, int]:
    """A small decoder and a number of ranks that divides it."""
    size = draw(st.integers(1, 4))
    kv = size * draw(st.integers(1, 2))
    config = Qwen3Config(
        vocab_size=draw(st.integers(size, 23)),
        hidden_size=draw(st.integers(1, 9)),
        num_layers=draw(st.integers(1, 2)),
        num_heads=kv * draw(st.integers(1, 3)),
        num_kv_heads=kv,
        head_dim=2 * draw(st.integers(1, 3)),
        intermediate_size=size * draw(st.integers(1, 5)),
        max_context=32,
        tie_word_embeddings=draw(st.booleans()),
    )
    return config, size


@given(model=models())
def test_joined_parts_are_the_whole(model):
    config, size = model
    whole = random_parameters(config, 0)
    parts = [Shard(config=config, rank=rank, size=size).of(whole) for rank in range(size)]
    assert all(torch.equal(join(name, [part[name] for part in parts]), tensor) for name, tensor in whole.items())


@given(model=models())
def test_shapes_are_those_of_the_parts_and_every_divided_number_is_in_one_part(model):
    config, size = model
    whole = random_parameters(config, 0)
    shards = [Shard(config=config, rank=rank, size=size) for rank in range(size)]
    for shard in shards:
        assert {name: tuple(part.shape) for name, part in shard.of(whole).items()} == shard.shapes()
        assert list(shard.shapes()) == list(parameter_shapes(config))
    for name, tensor in whole.items():
        parts = sum(torch.Size(shard.shapes()[name]).numel() for shard in shards)
        assert parts == tensor.numel() * (size if split_of(name) is Split.replicated else 1)


@given(model=models())
def test_a_part_is_a_decoder_by_itself(model):
    """Its heads, its keys and its feed-forward fit together, as the own configuration says."""
    config, size = model
    shard = Shard(config=config, rank=size - 1, size=size)
    shapes = {name: shape for name, shape in parameter_shapes(shard.own).items() if split_of(name) is not Split.vocabulary}
    assert {name: shape for name, shape in shard.shapes().items() if name in shapes} == shapes


@given(length=st.integers(0, 100), size=st.integers(1, 9))
def test_bounds_cover_everything_once_and_evenly(length, size):
    parts = [bounds(length, rank, size) for rank in range(size)]
    assert [index for start, end in parts for index in range(start, end)] == list(range(length))
    lengths = [end - start for start, end in parts]
    assert lengths == sorted(lengths, reverse=True) and max(lengths) - min(lengths) <= 1


def test_norms_are_on_every_rank_and_matrices_are_not():
    config = Qwen3Config(
        vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=4, intermediate_size=6, max_context=8
    )
    for name, shape in parameter_shapes(config).items():
        assert (split_of(name) is Split.replicated) == (len(shape) == 1), name


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"num_heads": 6, "num_kv_heads": 3}, "model.num_heads=6"),
        ({"num_kv_heads": 2}, "model.num_kv_heads=2"),
        ({"intermediate_size": 9}, "model.intermediate_size=9"),
    ],
)
def test_a_model_that_does_not_divide_is_refused_by_name(fields, refused):
    good = {"num_heads": 8, "num_kv_heads": 4, "intermediate_size": 8}
    config = Qwen3Config(vocab_size=9, hidden_size=8, num_layers=1, head_dim=4, max_context=8, **good | fields)
    with pytest.raises(UserError, match=refused + ".*multiple of the 4 ranks"):
        Shard(config=config, rank=0, size=4)


def test_a_part_alone_does_not_compute_the_whole():
    """So that the tests of equality elsewhere can fail."""
    config = Qwen3Config(
        vocab_size=9, hidden_size=8, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=4, intermediate_size=6, max_context=8, init_std=0.5
    )
    whole, ids = random_parameters(config, 0), torch.arange(5)
    part = whole | {name: t for name, t in Shard(config=config, rank=0, size=2).of(whole).items() if split_of(name) is not Split.vocabulary}
    assert not torch.allclose(forward(part, config, ids, [5]), forward(whole, config, ids, [5]), atol=1e-2)
