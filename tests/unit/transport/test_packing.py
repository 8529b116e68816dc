"""Snapshots as one block of memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gyre_hpc.transport.checksums import ChunkSums
from gyre_hpc.transport.host_memory import HostMemory
from gyre_hpc.transport.packing import Entry, from_block, num_chunks, pack

ARRAYS = st.builds(
    lambda shape, dtype, seed: np.asarray(np.random.default_rng(seed).random(shape) * 100, dtype=dtype),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.sampled_from(["<f4", "<f8", "<i4", "<i8", "|u1", "<f2"]),
    st.integers(0, 1000),
)


@given(tensors=st.dictionaries(st.text(max_size=8), st.one_of(ARRAYS, ARRAYS.map(torch.from_numpy), st.binary(max_size=99)), max_size=6))
def test_packing_and_unpacking_gives_the_same_tensors(tensors):
    packed = pack(tensors, HostMemory())
    again = from_block(packed.entries, packed.block.copy())
    assert list(again.tensors) == list(tensors)
    for name, value in tensors.items():
        got = again.tensors[name]
        assert type(got) is type(value)
        if isinstance(value, torch.Tensor):
            assert got.dtype == value.dtype
            assert torch.equal(got, value)
        elif isinstance(value, np.ndarray):
            assert got.dtype == value.dtype
            assert np.array_equal(got, value)
        else:
            assert got == value


@given(size=st.integers(0, 5000), chunk=st.integers(1, 900))
def test_there_is_one_checksum_for_each_chunk(size, chunk):
    assert len(ChunkSums(np.zeros(size, dtype=np.uint8), chunk)) == num_chunks(size, chunk)


@pytest.mark.parametrize(
    "entry", [Entry("a", "numpy", "<f4", (4,), 64, 16), Entry("a", "numpy", "<f4", (4,), -64, 16), Entry("a", "numpy", "<f4", (4,), 4, 16)]
)
def test_an_entry_outside_its_block_is_refused(entry):
    with pytest.raises(ValueError, match="outside"):
        from_block((entry,), np.zeros(64, dtype=np.uint8))


@pytest.mark.parametrize("entry", [Entry("a", "torch", "load", (4,), 0, 16), Entry("a", "pickle", "", (4,), 0, 16)])
def test_an_unknown_kind_or_dtype_is_refused(entry):
    with pytest.raises(ValueError, match="unknown"):
        from_block((entry,), np.zeros(64, dtype=np.uint8))


def test_python_objects_are_refused():
    with pytest.raises(TypeError, match="'a'"):
        pack({"a": np.array([object()])}, HostMemory())
    with pytest.raises(TypeError, match="list"):
        pack({"a": [1, 2]}, HostMemory())


def test_the_torch_free_kinds_load_no_torch():
    program = (
        "import sys; import gyre_hpc.train.timed, gyre_hpc.train.checkpoint_folder, gyre_hpc.transport.memory_groups\n"
        "from gyre_hpc.config.schema import *; from gyre_hpc.train import create_trainer; from gyre_hpc.transport.groups import create_groups\n"
        "from gyre_hpc.transport.snapshot_store import HostSnapshotStore; from gyre_hpc.protocol.identity import Version\n"
        "store = HostSnapshotStore(); config = Config(trainer=TrainerConfig(kind=TrainerKind.timed))\n"
        "create_trainer(config, vocab_size=1, store=store).init(Version(0, 0)); create_groups(TransportConfig(groups='memory'), '127.0.0.1')\n"
        "assert store.versions() and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
