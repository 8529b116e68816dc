"""A real SGLang on a GPU: memory given back and taken again, its numbers beside the trainer's, new weights over a group.

Never run so far: no machine of this project had a GPU. Kernels for trees of trajectories are not tested here, because the project
has none yet. Tests run in the order of this file, each with what the one before left; at most 8 minutes in all, most of them the
start of the server.
"""

import os
import time

import pytest
import torch
import torch.distributed

from gyre_hpc.engines.sglang.parts import ServerLost
from gyre_hpc.engines.sglang.weight_disk import DiskSender
from gyre_hpc.engines.sglang.weight_group import GroupSender
from gyre_hpc.models.parameters import num_parameters
from gyre_hpc.protocol.identity import Version
from tests.gpu.stand import KV_TOKENS, MODEL, V0, V1, V2, Stand
from tests.sglang.oracle import LONG_PROMPT, PROMPT, Greedy, greedy

DEADLINE_S = 60.0
WEIGHT_BYTES = 2 * num_parameters(MODEL)
KV_BYTES = KV_TOKENS * MODEL.num_layers * 2 * MODEL.num_kv_heads * MODEL.head_dim * 2
GIB = 2**30

pytestmark = pytest.mark.timeout(400)


def answers(stand: Stand) -> list[Greedy]:
    return [stand.run(greedy(stand.client, prompt, 64)) for prompt in (PROMPT, LONG_PROMPT)]


def test_a_server_that_sleeps_gives_its_weights_and_kv_back_and_takes_them_again(stand: Stand) -> None:
    stand.run(sent_by_disk(stand, V0))
    before = answers(stand)
    awake = stand.used()
    assert stand.run(stand.client.flush(30.0))
    stand.run(stand.client.release_memory())
    asleep = stand.used()
    stand.run(stand.client.resume_memory())
    again = stand.used()
    stand.figures |= {"awake_gib": awake / GIB, "asleep_gib": asleep / GIB, "awake_again_gib": again / GIB}
    stand.run(sent_by_disk(stand, V0))
    assert [answer.ids for answer in answers(stand)] == [answer.ids for answer in before]
    assert awake - asleep > 0.8 * (WEIGHT_BYTES + KV_BYTES)
    assert abs(again - awake) < 0.2 * (WEIGHT_BYTES + KV_BYTES)


def test_logprobs_in_bfloat16_are_near_those_of_the_trainer(stand: Stand) -> None:
    said = answers(stand)
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        means, most = zip(*(stand.gap(answer, V0, dtype) for answer in said), strict=True)
        stand.figures |= {f"logprob_gap_mean_{name}": max(means), f"logprob_gap_max_{name}": max(most)}
    control, _ = stand.gap(said[0], V0, changed=True)
    stand.figures["logprob_gap_mean_of_another_prompt"] = control
    assert 5 * stand.figures["logprob_gap_mean_float32"] < control
    assert 5 * stand.figures["logprob_gap_mean_bfloat16"] < control


def test_weights_over_gloo_take_effect(stand: Stand) -> None:
    """Through host memory: what a cell does unless it is told that its ranks may share a GPU."""
    updated(stand, "gloo", "cpu", V1, V0)


def test_weights_over_nccl_take_effect(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another GPU, or from the server's own where NCCL lets two ranks share one. The last test: a refusal costs the server."""
    if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
        pytest.skip("this torch has no CUDA; install its CUDA build into the project's environment")
    shares = torch.cuda.device_count() < 2
    monkeypatch.setitem(os.environ, "NCCL_MULTI_RANK_GPU_ENABLE", "1")
    try:
        updated(stand, "nccl", "cuda:0" if shares else "cuda:1", V2, V1)
    except ServerLost as lost:
        if shares and ("same GPU" in str(lost) or "Duplicate GPU" in str(lost) or "invalid usage" in str(lost)):
            stand.figures["nccl_refused"] = str(lost)
            pytest.skip(f"this NCCL {torch.cuda.nccl.version()} does not let two ranks share the one GPU")
        raise


def updated(stand: Stand, backend: str, device: str, version: Version, old: Version) -> None:
    """The first transfer makes the connections; the second is timed."""

    async def sent() -> float:
        group = GroupSender(model=MODEL, dtype="bfloat16", backend=backend, device=device, host="127.0.0.1", world=1, deadline_s=DEADLINE_S)
        await group.join(stand.client)
        try:
            for _ in range(2):
                started = time.monotonic()
                await group.send(stand.client, version, stand.weights[version], flush=True)
            return time.monotonic() - started
        finally:
            await group.close()

    seconds = stand.run(sent())
    stand.figures |= {f"update_{backend}_s": seconds, f"update_{backend}_gb_s": WEIGHT_BYTES / seconds / 1e9}
    said = answers(stand)
    assert [answer.label for answer in said] == [str(version)] * 2
    for answer in said:
        assert 5 * stand.gap(answer, version)[0] < stand.gap(answer, old)[0]


async def sent_by_disk(stand: Stand, version: Version) -> None:
    disk = DiskSender(model=MODEL, dtype="bfloat16", folder=stand.scratch / "weights", deadline_s=DEADLINE_S)
    await disk.join(stand.client)
    await disk.send(stand.client, version, stand.weights[version], flush=True)
