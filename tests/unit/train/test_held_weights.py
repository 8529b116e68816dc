"""trainer.lr=0: a step like any other that leaves every parameter as it is, bit for bit."""

import pytest
import torch

from gyre_hpc.train.adamw import AdamW
from gyre_hpc.train.flat import FlatParameters


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_step_of_no_length_changes_no_bit(weight_decay: float):
    generator = torch.Generator().manual_seed(0)
    shape = {"matrix": (37, 5), "norm": (11,)}
    ours = FlatParameters(shape, torch.float32)
    ours.take({name: torch.randn(size, generator=generator) for name, size in shape.items()})
    before = ours.flat.clone()
    optimizer = AdamW(ours, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay)
    for scale in (0.0, 1e-20, 1.0, 1e20):
        assert optimizer.step(scale * torch.randn(len(before), generator=generator), 0.0) == 0.0
        assert torch.equal(ours.flat.view(torch.int32), before.view(torch.int32))
