"""Tiny models as Hugging Face folders, for comparing programs that compute them.

Weights of standard deviation 0.1: at the usual 0.02 a model of this size hardly looks at its context, and log-probs agree within
0.002 even when positions or prefixes are wrong. Norms are not all ones, so that a skipped one shows.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from gyre_hpc.models.checkpoint import save_checkpoint
from gyre_hpc.models.parameters import Parameters, parameter_shapes
from gyre_hpc.models.qwen3_config import Qwen3Config, to_hf

STD = 0.1
VOCAB = 512


def tiny_config(*, vocab_size: int = VOCAB, max_context: int = 4096, num_layers: int = 2) -> Qwen3Config:
    """About 140,000 parameters."""
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=64,
        num_layers=num_layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        intermediate_size=128,
        max_context=max_context,
        init_std=STD,
    )


def telling_parameters(config: Qwen3Config, seed: int) -> Parameters:
    """float32. Matrices normal(0, 0.1), norms uniform in 0.5 to 1.5; the same for the same seed."""
    return _drawn(parameter_shapes(config), torch.Generator().manual_seed(seed))


def write_qwen3(folder: Path, *, seed: int = 0, config: Qwen3Config | None = None) -> tuple[Qwen3Config, Parameters]:
    """config.json and weights."""
    config = config or tiny_config()
    params = telling_parameters(config, seed)
    save_checkpoint(folder, config, params)
    return config, params


def write_qwen2(folder: Path, *, seed: int = 0, config: Qwen3Config | None = None) -> tuple[Qwen3Config, Parameters]:
    """The same shape as Qwen2 has it: biases on q, k and v, no norms of q and k. Our own decoder does not compute it."""
    config = config or tiny_config()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            continue
        shapes[name] = shape
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            shapes[name.replace(".weight", ".bias")] = shape[:1]
    params = _drawn(shapes, torch.Generator().manual_seed(seed))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(params, folder / "model.safetensors", metadata={"format": "pt"})
    described = to_hf(config) | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "attention_bias": True}
    described.pop("head_dim")  # Qwen2's is hidden_size / num_attention_heads
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    return config, params


def _drawn(shapes: dict[str, tuple[int, ...]], generator: torch.Generator) -> Parameters:
    return {
        name: torch.rand(shape, generator=generator) + 0.5
        if name.endswith("norm.weight")
        else torch.randn(shape, generator=generator) * STD
        for name, shape in shapes.items()
    }
