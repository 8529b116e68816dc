"""Names and shapes of a Qwen3 decoder's parameters, in Hugging Face's words, and random ones to start from.

A model here is a flat dict name -> tensor: a snapshot can be used as it is, without a copy into modules.
"""

import torch

from gyre_hpc.models.qwen3_config import Qwen3Config

Parameters = dict[str, torch.Tensor]


def layer_shapes(config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """Shapes by name within one layer (`model.layers.N.` goes in front)."""
    d, hd = config.hidden_size, config.head_dim
    return {
        "input_layernorm.weight": (d,),
        "self_attn.q_proj.weight": (config.num_heads * hd, d),
        "self_attn.k_proj.weight": (config.num_kv_heads * hd, d),
        "self_attn.v_proj.weight": (config.num_kv_heads * hd, d),
        "self_attn.o_proj.weight": (d, config.num_heads * hd),
        "self_attn.q_norm.weight": (hd,),
        "self_attn.k_norm.weight": (hd,),
        "post_attention_layernorm.weight": (d,),
        "mlp.gate_proj.weight": (config.intermediate_size, d),
        "mlp.up_proj.weight": (config.intermediate_size, d),
        "mlp.down_proj.weight": (d, config.intermediate_size),
    }


def parameter_shapes(config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """Shapes by full name, in a fixed order. Tied models have no lm_head.weight."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in layer_shapes(config).items()}
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def num_parameters(config: Qwen3Config) -> int:
    return sum(torch.Size(shape).numel() for shape in parameter_shapes(config).values())


def random_parameters(config: Qwen3Config, seed: int) -> Parameters:
    """float32 on the CPU: matrices normal(0, init_std), norms 1. The same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * config.init_std
        for name, shape in parameter_shapes(config).items()
    }


def head_weight(params: Parameters, config: Qwen3Config) -> torch.Tensor:
    """[V, d]: the output matrix, which tied models share with the embedding."""
    return params["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
