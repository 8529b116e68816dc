"""Our decoder against transformers' Qwen3ForCausalLM: logits and checkpoints, both ways."""

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config as HfConfig
from transformers import Qwen3ForCausalLM

from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.errors import UserError
from gyre_hpc.models import checkpoint, parameters, qwen3, qwen3_config

SHAPE = qwen3_config.Qwen3Config(
    vocab_size=97,
    hidden_size=48,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=80,
    max_context=128,
    rope_theta=5000.0,
    init_std=0.1,
)


def shaken(config: qwen3_config.Qwen3Config, seed: int) -> parameters.Parameters:
    """Random norms too: a skipped or swapped norm must show."""
    generator = torch.Generator().manual_seed(seed)
    params = parameters.random_parameters(config, seed)
    return {n: p + 0.3 * torch.randn(p.shape, generator=generator) if p.dim() == 1 else p for n, p in params.items()}


def hf_model(tie: bool) -> Qwen3ForCausalLM:
    torch.manual_seed(7)
    fields = qwen3_config.to_hf(qwen3_config.from_hf(qwen3_config.to_hf(SHAPE), "test"))
    fields.pop("torch_dtype")
    fields["tie_word_embeddings"] = tie
    model = Qwen3ForCausalLM(HfConfig(**fields)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("tie", [False, True])
def test_a_folder_transformers_wrote_gives_its_logits(tmp_path: Path, tie: bool) -> None:
    model = hf_model(tie)
    model.save_pretrained(tmp_path)
    config, params = checkpoint.load_checkpoint(tmp_path)
    assert config.tie_word_embeddings is tie
    assert config.rope_theta == SHAPE.rope_theta
    ids = torch.randint(0, SHAPE.vocab_size, (50,))
    with torch.no_grad():
        theirs = model(ids[None]).logits[0]
        ours = qwen3.forward(params, config, ids, [50])
    assert (ours - theirs).abs().max() < 1e-5
    assert theirs.std() > 0.1, "logits must differ enough for the comparison to mean something"


@pytest.mark.parametrize("tie", [False, True])
def test_a_folder_we_wrote_gives_our_logits_in_transformers(tmp_path: Path, tie: bool) -> None:
    config = qwen3_config.from_hf(qwen3_config.to_hf(SHAPE) | {"tie_word_embeddings": tie}, "test")
    params = shaken(config, 3)
    checkpoint.save_checkpoint(tmp_path, config, params)
    model = Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.randint(0, SHAPE.vocab_size, (50,))
    with torch.no_grad():
        assert (qwen3.forward(params, config, ids, [50]) - model(ids[None]).logits[0]).abs().max() < 1e-5
    again_config, again = checkpoint.load_checkpoint(tmp_path)
    assert again_config == config
    assert all(torch.equal(again[name], params[name]) for name in params)


def test_packed_sequences_do_not_see_each_other() -> None:
    params = shaken(SHAPE, 1)
    lengths = [5, 17, 1, 30]
    ids = torch.randint(0, SHAPE.vocab_size, (sum(lengths),))
    packed = qwen3.forward(params, SHAPE, ids, lengths).split(lengths)
    for piece, logits in zip(ids.split(lengths), packed, strict=True):
        assert (qwen3.forward(params, SHAPE, piece, [len(piece)]) - logits).abs().max() < 1e-5


def test_target_logprobs_are_those_of_the_tempered_distribution() -> None:
    params = shaken(SHAPE, 2)
    lengths = [9, 12]
    ids = torch.randint(0, SHAPE.vocab_size, (21,))
    rows = torch.tensor([1, 8, 10, 20])
    got = qwen3.target_logprobs(params, SHAPE, ids, lengths, rows, temperature=0.7)
    full = torch.log_softmax(qwen3.forward(params, SHAPE, ids, lengths) / 0.7, -1)
    assert torch.allclose(got, full[rows - 1, ids[rows]], atol=1e-6)


def test_gradients_reach_every_parameter_and_only_through_targets() -> None:
    params = {name: p.requires_grad_() for name, p in shaken(SHAPE, 4).items()}
    ids = torch.randint(0, SHAPE.vocab_size, (20,))
    qwen3.target_logprobs(params, SHAPE, ids, [10, 10], torch.tensor([4, 9])).sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in params.values())
    assert not params["model.embed_tokens.weight"].grad[ids[10:].unique()[~torch.isin(ids[10:].unique(), ids[:10])]].any()


def test_random_parameters_follow_the_seed() -> None:
    one, same, other = (parameters.random_parameters(SHAPE, seed) for seed in (0, 0, 1))
    name = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])


def test_the_run_configuration_gives_the_default_shape() -> None:
    config = qwen3_config.from_model_config(ModelConfig(), 300)
    assert (config.hidden_size, config.num_layers, config.num_heads, config.num_kv_heads) == (64, 3, 4, 2)
    assert parameters.num_parameters(config) < 250_000


def test_what_the_forward_does_not_compute_is_refused(tmp_path: Path) -> None:
    good = qwen3_config.to_hf(SHAPE)
    for change in (
        {"attention_bias": True},
        {"use_sliding_window": True},
        {"model_type": "llama"},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
    ):
        with pytest.raises(UserError, match=next(iter(change))):
            qwen3_config.from_hf(good | change, "config.json")
    with pytest.raises(UserError, match="config.json"):
        qwen3_config.read_config(tmp_path)


def test_a_damaged_folder_is_refused_by_name(tmp_path: Path) -> None:
    params = shaken(SHAPE, 3)
    with pytest.raises(UserError, match="lm_head"):
        checkpoint.save_checkpoint(tmp_path, SHAPE, {n: p for n, p in params.items() if n != "lm_head.weight"})
    checkpoint.save_checkpoint(tmp_path, SHAPE, params)
    (tmp_path / "config.json").write_text(json.dumps(qwen3_config.to_hf(SHAPE) | {"intermediate_size": 81}))
    with pytest.raises(UserError, match="gate_proj"):
        checkpoint.load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="model.safetensors"):
        checkpoint.load_checkpoint(tmp_path)
