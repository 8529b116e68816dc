"""The engine's forward of a Qwen3 decoder: prefill chunks of one sequence and one decode step of many.

On small models a CPU spends its time on starting operations, so their number is what counts. The weights are therefore
rearranged once per version (`Prepared`), such that the same numbers come out of fewer operations:

  - the residual stream is kept as (x, -x): its layer norm *is* the RMS norm of x (mean 0, variance mean(x^2)), one
    operation instead of six. Embedding, o_proj and down_proj write both halves; readers take the first;
  - norm weights are multiplied into the matrix that follows, the attention scale into q_norm;
  - q, k and v are one matrix, gate and up another. Each head of q and k leaves it as (-b, a, b, -a) of its halves a, b:
    (a, b) and RoPE's rotated (-b, a) are then slices, and the layer norm of the whole is again the RMS norm.

Equal to models/qwen3.py up to float32 rounding (a test holds the bound).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from gyre_hpc.models.kv_rows import KVRows, KVSpan
from gyre_hpc.models.parameters import Parameters, head_weight
from gyre_hpc.models.qwen3 import rope_tables
from gyre_hpc.models.qwen3_config import Qwen3Config

_KEY_BLOCK = 512
"""Keys that a prefill scores at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    """Matrices are [in, out]."""

    qkv: torch.Tensor
    """[d, (H + KV) * 2 hd + KV * hd]."""
    qk_norm: torch.Tensor
    """[H + KV, 2 hd]."""
    out: torch.Tensor
    """[H * hd, 2 d]."""
    gate_up: torch.Tensor
    """[d, 2 I]."""
    down: torch.Tensor
    """[I, 2 d]."""


def _heads_unfolded(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """[heads * hd, d] -> [heads * 2 hd, d]: per head (-b, a, b, -a) of its halves."""
    a, b = weight.view(-1, 2, head_dim // 2, weight.shape[-1]).unbind(1)
    return torch.cat((-b, a, b, -a), 1).flatten(0, 1)


def _both_signs(out: torch.Tensor) -> torch.Tensor:
    """[d, in] -> [in, 2 d]: writes both halves of the residual stream."""
    return torch.cat((out, -out)).t().contiguous()


def _prepare_layer(
    params: Parameters, config: Qwen3Config, layer: int, arrange: Callable[[torch.Tensor], torch.Tensor] = _both_signs
) -> _Layer:
    """arrange: what becomes of the matrices that write to the residual stream."""

    def weight(name: str) -> torch.Tensor:
        return params[f"model.layers.{layer}.{name}.weight"]

    hd, half = config.head_dim, config.head_dim // 2
    before, after = weight("input_layernorm"), weight("post_attention_layernorm")
    qkv = torch.cat(
        (
            _heads_unfolded(weight("self_attn.q_proj"), hd),
            _heads_unfolded(weight("self_attn.k_proj"), hd),
            weight("self_attn.v_proj"),
        )
    )
    q_norm, k_norm = weight("self_attn.q_norm") / math.sqrt(hd), weight("self_attn.k_norm")
    norms = torch.stack([q_norm] * config.num_heads + [k_norm] * config.num_kv_heads)
    a, b = norms[:, :half], norms[:, half:]
    gate_up = torch.cat((weight("mlp.gate_proj"), weight("mlp.up_proj")))
    return _Layer(
        qkv=(qkv * before).t().contiguous(),
        qk_norm=torch.cat((b, a, b, a), 1).contiguous(),
        out=arrange(weight("self_attn.o_proj")),
        gate_up=(gate_up * after).t().contiguous(),
        down=arrange(weight("mlp.down_proj")),
    )


class Prepared:
    """One version's weights in the arrangement above. Immutable; owns copies, so the snapshot may go.

    Three places are methods, because a rank that holds a part of the weights does more there (sharded_incremental.py).
    """

    @torch.inference_mode()
    def __init__(self, params: Parameters, config: Qwen3Config) -> None:
        self.config = config
        self.embedding, self.layers, self.head = self._arranged(params)
        cos, sin = rope_tables(config, torch.arange(config.max_context))
        self.cos = torch.cat((cos, cos), 1)[:, None].contiguous()
        self.sin = torch.cat((sin, sin), 1)[:, None].contiguous()

    def _arranged(self, params: Parameters) -> tuple[torch.Tensor, tuple[_Layer, ...], torch.Tensor]:
        """Embedding [V, 2d], layers, output matrix [d, V]."""
        c, embedding = self.config, params["model.embed_tokens.weight"]
        layers = tuple(_prepare_layer(params, c, layer) for layer in range(c.num_layers))
        head = (head_weight(params, c) * params["model.norm.weight"]).t().contiguous()
        return torch.cat((embedding, -embedding), 1), layers, head

    def num_bytes(self) -> int:
        tensors = [self.embedding, self.head, self.cos, self.sin]
        tensors += [t for layer in self.layers for t in (layer.qkv, layer.qk_norm, layer.out, layer.gate_up, layer.down)]
        return sum(t.numel() * t.element_size() for t in tensors)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Stream [N, 2d] of tokens [N]."""
        return self.embedding.index_select(0, tokens)

    def add(self, x: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """Stream x [N, 2d] and what y [N, in] adds to it through `out` or `down` of a layer."""
        return torch.addmm(x, y, matrix)

    def score(self, h: torch.Tensor) -> torch.Tensor:
        """Normed stream [N, d] -> logits [N, V]."""
        return torch.mm(h, self.head)


def _norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Layer norm over the last dimension without weights."""
    return torch.layer_norm(x, x.shape[-1:], None, None, eps, False)


def _qkv(
    prepared: Prepared, layer: _Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stream [N, 2d] -> rotated q [N, H, hd] (scaled) and k [N, KV, hd], v [N, KV, hd]."""
    c = prepared.config
    n, hd, heads, kv = x.shape[0], c.head_dim, c.num_heads + c.num_kv_heads, c.num_kv_heads
    h = _norm(x, c.rms_norm_eps)[:, : c.hidden_size]
    qk, v = torch.split_with_sizes(torch.mm(h, layer.qkv), (heads * 2 * hd, kv * hd), 1)
    qk = _norm(qk.view(n, heads, 2 * hd), c.rms_norm_eps).mul_(layer.qk_norm)
    rotated = qk[..., hd // 2 : hd // 2 + hd].mul(cos).addcmul_(qk[..., :hd], sin)
    q, k = torch.split_with_sizes(rotated, (c.num_heads, kv), 1)
    return q, k, v.view(n, kv, hd)


def _rest(prepared: Prepared, layer: _Layer, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    """Output projection and feed-forward. attended [N, H * hd]; x and the result [N, 2d]."""
    c = prepared.config
    x = prepared.add(x, attended, layer.out)
    h = _norm(x, c.rms_norm_eps)[:, : c.hidden_size]
    gate, up = torch.split_with_sizes(torch.mm(h, layer.gate_up), (c.intermediate_size, c.intermediate_size), 1)
    return prepared.add(x, F.silu(gate).mul_(up), layer.down)


def _logits(prepared: Prepared, x: torch.Tensor) -> torch.Tensor:
    return prepared.score(_norm(x, prepared.config.rms_norm_eps)[:, : prepared.config.hidden_size])


@torch.inference_mode()
def decode(prepared: Prepared, ids: list[int], positions: list[int], rows: KVRows) -> torch.Tensor:
    """One token of each row: write its KV at the rows' column, attend to the row, return logits [B, V] float32.

    ids and positions are by row. The caller has called `rows.next_column()`.
    """
    c = prepared.config
    n = len(ids)
    tokens, places = torch.tensor([ids, positions]).unbind(0)
    x = prepared.embed(tokens)
    cos, sin = prepared.cos.index_select(0, places), prepared.sin.index_select(0, places)
    views = rows.views(n)
    for layer, column, context in zip(prepared.layers, views.columns, views.contexts, strict=True):
        q, k, v = _qkv(prepared, layer, x, cos, sin)
        column[0].copy_(k)
        column[1].copy_(v)
        keys, values = context.unbind(0)
        q = q.reshape(n * c.num_kv_heads, c.num_queries_per_kv, c.head_dim)
        scores = torch.baddbmm(views.mask, q, keys)
        attended = torch.bmm(torch.softmax(scores, -1), values.transpose(1, 2)).view(n, -1)
        x = _rest(prepared, layer, x, attended)
    return _logits(prepared, x)


def _attend_in_blocks(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int, mask: torch.Tensor) -> torch.Tensor:
    """Softmax attention of q [KV, G * n, hd] over keys and values [KV, hd, end], masked by mask [n, end - first] from key
    `first` on and not at all before.

    Keys come in blocks whose scores fit the processor's cache, and are weighted against the largest score so far: with
    20,000 keys four times as fast as all scores at once, and its memory does not grow with the context.
    """
    scores = torch.bmm(q, keys[:, :, first:])
    scores.view(len(q), -1, *mask.shape).add_(mask)
    top = scores.amax(-1, keepdim=True)
    weights = scores.sub_(top).exp_()
    total, attended = weights.sum(-1, keepdim=True), torch.bmm(weights, values[:, :, first:].transpose(1, 2))
    for begin in range(0, first, _KEY_BLOCK):
        end = min(begin + _KEY_BLOCK, first)
        scores = torch.bmm(q, keys[:, :, begin:end])
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, weights, top = top.sub_(higher).exp_(), scores.sub_(higher).exp_(), higher
        total = total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        attended = torch.baddbmm(attended.mul_(shrink), weights, values[:, :, begin:end].transpose(1, 2))
    return attended.div_(total)


@torch.inference_mode()
def prefill(prepared: Prepared, ids: list[int], start: int, span: KVSpan) -> torch.Tensor:
    """Tokens [start, start + n) of one sequence whose KV before `start` is in `span`; write theirs there.

    Returns the logits [V] of the last token.
    """
    c = prepared.config
    n, end = len(ids), start + len(ids)
    x = prepared.embed(torch.tensor(ids))
    cos, sin = prepared.cos[start:end], prepared.sin[start:end]
    first = 0 if end <= 2 * _KEY_BLOCK else start
    mask = torch.full((n, end - first), -math.inf).triu_(start - first + 1)
    group = c.num_queries_per_kv
    for layer, kv in zip(prepared.layers, span[..., :end].unbind(0), strict=True):
        q, k, v = _qkv(prepared, layer, x, cos, sin)
        keys, values = kv.unbind(0)
        keys[:, :, start:] = k.permute(1, 2, 0)
        values[:, :, start:] = v.permute(1, 2, 0)
        q = q.unflatten(1, (c.num_kv_heads, group)).permute(1, 2, 0, 3).reshape(c.num_kv_heads, group * n, c.head_dim)
        attended = _attend_in_blocks(q, keys, values, first, mask)
        attended = attended.view(c.num_heads, n, c.head_dim).transpose(0, 1).reshape(n, -1)
        x = _rest(prepared, layer, x, attended)
    return _logits(prepared, x[-1:])[0]
