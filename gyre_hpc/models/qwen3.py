"""Forward of a Qwen3 decoder over packed sequences, for training and as the reference of the engine's own forward.

Functional: `params` is a flat dict by Hugging Face names (models/parameters.py) and is only read. Sequences of different
lengths lie end to end, so dense layers see no padding; attention runs per sequence and never across two.

With a `Joint`, `params` are the parts of one of several ranks, and the same lines compute the whole model together.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from gyre_hpc.models.parameters import Parameters, head_weight
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.tensor_parallel import Joint


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rope_tables(config: Qwen3Config, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [N, head_dim / 2] float32 of positions [N]."""
    half = config.head_dim // 2
    inverse = 1.0 / (config.rope_theta ** (torch.arange(0, half, dtype=torch.float32, device=positions.device) / half))
    angles = positions.to(torch.float32)[:, None] * inverse
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE of x [N, heads, head_dim]; pairs are (i, i + head_dim / 2)."""
    first, second = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Causal attention per sequence. q [N, H, hd], k and v [N, KV, hd] -> [N, H * hd]."""
    pieces = zip(*(x.transpose(0, 1)[None].split(list(lengths), 2) for x in (q, k, v)), strict=True)
    outputs = [F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) for q, k, v in pieces]
    return torch.cat(outputs, 2)[0].transpose(0, 1).flatten(1)


def _layer(
    params: Parameters,
    config: Qwen3Config,
    layer: int,
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    lengths: Sequence[int],
    joint: Joint | None,
) -> torch.Tensor:
    def weight(name: str) -> torch.Tensor:
        return params[f"model.layers.{layer}.{name}.weight"]

    n, hd, eps = x.shape[0], config.head_dim, config.rms_norm_eps
    h = _enter(rms_norm(x, weight("input_layernorm"), eps), joint)
    # Every rank has these norms, but its own heads alone pass through: their gradients are parts, too.
    q_norm, k_norm = (_enter(weight(f"self_attn.{name}"), joint) for name in ("q_norm", "k_norm"))
    q = rms_norm(F.linear(h, weight("self_attn.q_proj")).view(n, -1, hd), q_norm, eps)
    k = rms_norm(F.linear(h, weight("self_attn.k_proj")).view(n, -1, hd), k_norm, eps)
    v = F.linear(h, weight("self_attn.v_proj")).view(n, -1, hd)
    attended = _attend(rotate(q, cos, sin), rotate(k, cos, sin), v, lengths)
    x = x + _leave(F.linear(attended, weight("self_attn.o_proj")), joint)
    h = _enter(rms_norm(x, weight("post_attention_layernorm"), eps), joint)
    gated = F.silu(F.linear(h, weight("mlp.gate_proj"))) * F.linear(h, weight("mlp.up_proj"))
    return x + _leave(F.linear(gated, weight("mlp.down_proj")), joint)


def _enter(x: torch.Tensor, joint: Joint | None) -> torch.Tensor:
    return x if joint is None else joint.enter(x)


def _leave(x: torch.Tensor, joint: Joint | None) -> torch.Tensor:
    return x if joint is None else joint.leave(x)


def packed_positions(lengths: Sequence[int]) -> torch.Tensor:
    """[N] int64: 0, 1, ... anew for each sequence."""
    return torch.cat([torch.arange(length) for length in lengths])


def hidden_states(
    params: Parameters,
    config: Qwen3Config,
    ids: torch.Tensor,
    lengths: Sequence[int],
    positions: torch.Tensor | None = None,
    joint: Joint | None = None,
) -> torch.Tensor:
    """Final normed hidden states [N, d] of packed ids [N] int64; N = sum(lengths).

    positions [N] default to 0, 1, ... in each sequence.
    """
    if positions is None:
        positions = packed_positions(lengths)
    cos, sin = rope_tables(config, positions)
    embedding = params["model.embed_tokens.weight"]
    x = F.embedding(ids, embedding) if joint is None else joint.embed(ids, embedding)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    for layer in range(config.num_layers):
        x = _layer(params, config, layer, x, cos, sin, lengths, joint)
    return rms_norm(x, params["model.norm.weight"], config.rms_norm_eps)


def logits(params: Parameters, config: Qwen3Config, hidden: torch.Tensor, joint: Joint | None = None) -> torch.Tensor:
    """[N, d] -> [N, V], with `joint` [N, the rank's part of V]."""
    return F.linear(_enter(hidden, joint), head_weight(params, config))


def forward(
    params: Parameters,
    config: Qwen3Config,
    ids: torch.Tensor,
    lengths: Sequence[int],
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits [N, V] of packed ids [N]; row i predicts the token after i."""
    return logits(params, config, hidden_states(params, config, ids, lengths, positions))


def target_logprobs(
    params: Parameters,
    config: Qwen3Config,
    ids: torch.Tensor,
    lengths: Sequence[int],
    target_rows: torch.Tensor,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Log-probs [M] of ids[target_rows] (int64 [M], rows in the packed order, none the first of its sequence), each given
    what stands before it in its sequence, under softmax(logits / temperature).

    Only M rows go through the output matrix: prompts and tool results cost no logits.
    """
    hidden = hidden_states(params, config, ids, lengths)
    scores = logits(params, config, hidden.index_select(0, target_rows - 1))
    if temperature != 1.0:
        scores = scores / temperature
    return -F.cross_entropy(scores, ids.index_select(0, target_rows), reduction="none")
