"""Our AdamW against torch's."""

import pytest
import torch

from gyre_hpc.train.adamw import AdamW, clip_scale
from gyre_hpc.train.flat import FlatParameters

SHAPES = {"matrix": (4, 3), "norm": (5,)}


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_equal_torch_s(weight_decay):
    generator = torch.Generator().manual_seed(0)
    ours = FlatParameters(SHAPES, torch.float64)
    ours.take({name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()})
    theirs = {name: torch.nn.Parameter(tensor.clone()) for name, tensor in ours.tensors().items()}
    groups = [{"params": [theirs["matrix"]], "weight_decay": weight_decay}, {"params": [theirs["norm"]], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    optimizer = AdamW(ours, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay)
    for _ in range(5):
        gradient = torch.randn(17, generator=generator, dtype=torch.float64)
        for name, part in ours.split(gradient).items():
            theirs[name].grad = part.clone()
        before = ours.flat.clone()
        moved = optimizer.step(gradient, 0.01)
        reference.step()
        assert moved == pytest.approx(float((ours.flat - before).norm()))
        assert all(torch.allclose(theirs[name], tensor, rtol=1e-12, atol=1e-14) for name, tensor in ours.tensors().items())


def test_state_of_another_model_is_refused():
    optimizer = AdamW(FlatParameters(SHAPES, torch.float32), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    state = optimizer.state()
    with pytest.raises(ValueError, match="does not fit"):
        optimizer.load_state({"num_steps": state["num_steps"]})
    with pytest.raises(ValueError, match="shape"):
        optimizer.load_state({**state, "exp_avg.norm": torch.zeros(4)})


def test_parameters_of_another_model_are_refused():
    parameters = FlatParameters(SHAPES, torch.float32)
    with pytest.raises(ValueError, match="'norm'"):
        parameters.take({"matrix": torch.zeros(4, 3)})
    with pytest.raises(ValueError, match="shape"):
        parameters.take({"matrix": torch.zeros(3, 4), "norm": torch.zeros(5)})


def test_clipping_brings_the_norm_down_and_never_up():
    assert clip_scale(4.0, 1.0) == 0.25
    assert clip_scale(0.5, 1.0) == 1.0
    assert clip_scale(4.0, 0.0) == 1.0
    assert clip_scale(0.0, 1.0) == 1.0
