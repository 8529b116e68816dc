"""The engine's forward against the training forward, whatever the chunks, rows and their order."""

import random
from dataclasses import replace

import pytest
import torch

from gyre_hpc.models import incremental, kv_rows, parameters, qwen3, qwen3_config

MODEL = qwen3_config.Qwen3Config(
    vocab_size=61,
    hidden_size=24,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=40,
    max_context=700,
    init_std=0.3,
)
BOUND = 2e-5


def model(tie: bool = False) -> tuple[qwen3_config.Qwen3Config, parameters.Parameters, incremental.Prepared]:
    config = qwen3_config.from_hf(qwen3_config.to_hf(MODEL) | {"tie_word_embeddings": tie}, "test")
    generator = torch.Generator().manual_seed(5)
    params = {
        name: p + 0.3 * torch.randn(p.shape, generator=generator) if p.dim() == 1 else p
        for name, p in parameters.random_parameters(config, 2).items()
    }
    return config, params, incremental.Prepared(params, config)


def full(params: parameters.Parameters, config: qwen3_config.Qwen3Config, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return qwen3.forward(params, config, torch.tensor(ids), [len(ids)])


@pytest.mark.parametrize("chunks", [[50], [1, 49], [20, 20, 10], [49, 1]])
@pytest.mark.parametrize("tie", [False, True])
def test_chunked_prefill_gives_the_logits_of_the_whole(chunks: list[int], tie: bool) -> None:
    config, params, prepared = model(tie)
    ids = random.Random(0).choices(range(61), k=50)
    expected, span, start = full(params, config, ids), kv_rows.empty_span(config, 50), 0
    for chunk in chunks:
        logits = incremental.prefill(prepared, ids[start : start + chunk], start, span)
        start += chunk
        assert (logits - expected[start - 1]).abs().max() < BOUND
    assert expected.std() > 0.5


@pytest.mark.parametrize("chunk", [300, 1024, 1400])
def test_a_long_prefill_in_blocks_of_keys_gives_the_logits_of_the_whole(chunk: int) -> None:
    config, params, _ = model()
    config = replace(config, max_context=1400)
    prepared = incremental.Prepared(params, config)
    ids = random.Random(3).choices(range(61), k=1400)
    expected, span = full(params, config, ids), kv_rows.empty_span(config, 1400)
    for start in range(0, 1400, chunk):
        piece = ids[start : start + chunk]
        logits = incremental.prefill(prepared, piece, start, span)
        assert (logits - expected[start + len(piece) - 1]).abs().max() < BOUND


def test_rows_that_come_and_go_keep_their_own_context() -> None:
    """Rows join with different lengths, leave in any order, grow beyond the first columns and are moved."""
    config, params, prepared = model()
    rng = random.Random(1)
    rows = kv_rows.KVRows(config, 9, config.max_context)
    live: list[tuple[list[int], int]] = []
    expected: dict[int, torch.Tensor] = {}
    for step in range(400):
        if len(live) < 9 and (not live or rng.random() < 0.15):
            ids, known = rng.choices(range(61), k=650), rng.randrange(1, 120)
            span = kv_rows.empty_span(config, known)
            incremental.prefill(prepared, ids[:known], 0, span)
            assert rows.install(span) == len(live)
            live.append((ids, known))
            expected[id(ids)] = full(params, config, ids)
        elif len(live) > 1 and rng.random() < 0.1:
            row = rng.randrange(len(live))
            rows.remove(row)
            last = live.pop()
            if row < len(live):
                live[row] = last
        rows.next_column()
        logits = incremental.decode(prepared, [ids[known] for ids, known in live], [known for _, known in live], rows)
        for row, (ids, known) in enumerate(live):
            assert (logits[row] - expected[id(ids)][known]).abs().max() < BOUND, f"step {step} row {row}"
        live = [(ids, known + 1) for ids, known in live]
        for row in reversed([row for row, (_, known) in enumerate(live) if known >= 640]):
            rows.remove(row)
            last = live.pop()
            if row < len(live):
                live[row] = last
    assert [rows.length(row) for row in range(len(live))] == [known for _, known in live]


def test_a_rows_span_is_what_prefill_computes() -> None:
    config, _, prepared = model()
    ids = random.Random(2).choices(range(61), k=40)
    whole = kv_rows.empty_span(config, 40)
    incremental.prefill(prepared, ids, 0, whole)
    rows = kv_rows.KVRows(config, 2, 100)
    rows.install(whole[..., :10])
    for known in range(10, 40):
        rows.next_column()
        incremental.decode(prepared, [ids[known]], [known], rows)
    span = rows.span(0, 8, 40)
    assert (span - whole[..., 8:]).abs().max() < BOUND
