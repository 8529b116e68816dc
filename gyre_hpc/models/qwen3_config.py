"""The shape of a Qwen3 decoder. No torch here: launch and gateway may read it.

Two sources: the run's ModelConfig, or the config.json of a Hugging Face folder (as `transformers` 4.51 to 5 write it).
What our forward does not compute (biases, sliding windows, scaled RoPE) is refused, never ignored.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.errors import UserError


@dataclass(frozen=True, kw_only=True, slots=True)
class Qwen3Config:
    """Names are Hugging Face's where it has one (`num_layers` = num_hidden_layers, and so on)."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_context: int
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    init_std: float = 0.02

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise UserError("model.num_heads", self.num_heads, f"make it a multiple of num_kv_heads={self.num_kv_heads}")
        if self.head_dim % 2:
            raise UserError("model.head_dim", self.head_dim, "make it even: RoPE rotates pairs")
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size", "max_context"):
            if getattr(self, name) < 1:
                raise UserError(f"model.{name}", getattr(self, name), "make it at least 1")

    @property
    def num_queries_per_kv(self) -> int:
        return self.num_heads // self.num_kv_heads


def from_model_config(model: ModelConfig, vocab_size: int) -> Qwen3Config:
    """ModelConfig of a run + the tokenizer's vocabulary. With `model.path` the folder's config.json decides the shape.

    Raises UserError when the folder's vocabulary is smaller than the tokenizer's.
    """
    if model.path:
        config = read_config(Path(model.path))
        if config.vocab_size < vocab_size:
            raise UserError("model.tokenizer", model.tokenizer, f"it has {vocab_size} tokens, {model.path} only {config.vocab_size}")
        return config
    return Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        intermediate_size=model.intermediate_size,
        max_context=model.max_context,
        rope_theta=model.rope_theta,
        rms_norm_eps=model.rms_norm_eps,
        init_std=model.init_std,
    )


def to_hf(config: Qwen3Config) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_context,
        "initializer_range": config.init_std,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "torch_dtype": "float32",
    }


def from_hf(data: dict[str, Any], source: str) -> Qwen3Config:
    """Inverse of `to_hf` for what transformers writes. `source` names the file in errors. Raises UserError."""

    def refuse(field: str, value: object, remedy: str) -> UserError:
        return UserError(f"{source}:{field}", value, remedy)

    if data.get("model_type") != "qwen3":
        raise refuse("model_type", data.get("model_type"), "use a dense Qwen3 checkpoint (model_type qwen3)")
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise refuse("rope_parameters", rope, "only unscaled RoPE (rope_type default) is supported")
    if data.get("attention_bias"):
        raise refuse("attention_bias", True, "only attention without biases is supported")
    if data.get("use_sliding_window"):
        raise refuse("use_sliding_window", True, "only full attention is supported")
    if data.get("hidden_act", "silu") != "silu":
        raise refuse("hidden_act", data["hidden_act"], "only silu is supported")
    try:
        heads = int(data["num_attention_heads"])
        return Qwen3Config(
            vocab_size=int(data["vocab_size"]),
            hidden_size=int(data["hidden_size"]),
            num_layers=int(data["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(data.get("num_key_value_heads") or heads),
            head_dim=int(data.get("head_dim") or data["hidden_size"] // heads),
            intermediate_size=int(data["intermediate_size"]),
            max_context=int(data["max_position_embeddings"]),
            rope_theta=float(rope.get("rope_theta", data.get("rope_theta", 10000.0))),
            rms_norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(data.get("tie_word_embeddings", False)),
            init_std=float(data.get("initializer_range", 0.02)),
        )
    except KeyError as missing:
        raise refuse(str(missing.args[0]), None, "the field is missing; take the config.json that belongs to the weights") from None


def read_config(folder: Path) -> Qwen3Config:
    """config.json of a Hugging Face folder. Raises UserError."""
    path = folder / "config.json"
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError("model.path", str(folder), "it holds no config.json; give a Hugging Face folder") from None
    except ValueError as error:
        raise UserError("model.path", str(folder), f"its config.json is not JSON ({error})") from None
    return from_hf(data, str(path))
