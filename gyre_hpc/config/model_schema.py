"""What a run is told of its model: the keys under `model.` (schema.py puts them into the whole)."""

import enum
from dataclasses import dataclass, field
from typing import Any


class ParserKind(enum.Enum):
    """How a model writes tool calls."""

    auto = "auto"
    hermes = "hermes"
    qwen3_coder = "qwen3_coder"
    plain = "plain"


class PastThinking(enum.Enum):
    """What becomes of thinking that the template drops from past turns (docs/decisions/0007)."""

    keep = "keep"
    template = "template"


@dataclass(kw_only=True)
class ModelConfig:
    """Qwen3 decoder. vocab_size comes from the tokenizer."""

    path: str = ""
    """Hugging Face folder to start from; empty: random weights from `seed`."""
    tokenizer: str = "drill"
    """drill, or a Hugging Face folder that holds tokenizer.json."""
    template: str = "drill"
    """drill, own (the tokenizer folder's), chatml (built in, for models without one), or a .jinja file."""
    template_args: dict[str, Any] = field(default_factory=dict)
    """What the template is told besides messages and tools, e.g. enable_thinking: false."""
    parser: ParserKind = ParserKind.auto
    """auto: from what the template tells the model to write."""
    past_thinking: PastThinking = PastThinking.keep
    """keep: recorded thinking stays the context; template: where it would be dropped, a new branch begins."""
    guard_marks: bool = False
    """Control tokens that content spells stay text; false: they become control tokens, as with transformers."""
    hidden_size: int = 64
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 192
    max_context: int = 512
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    init_std: float = 0.02
