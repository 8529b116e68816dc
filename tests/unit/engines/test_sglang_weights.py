"""Weights into a server by group and by disk: whole, in its type, in bounded portions, labelled once all are there."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gyre_hpc.config.engine_schema import Device, SGLangConfig, WeightRoute
from gyre_hpc.engines.sglang.weights import group_backend, new_sender
from gyre_hpc.errors import UserError
from gyre_hpc.models.parameters import Parameters
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.protocol.identity import Version
from tests.fakes.weight_senders import MODEL, NEXT, TIED, UPDATE, delivered, group, of_kind, weights
from tests.fakes.weight_server import WeightServer


@pytest.mark.parametrize("kind", ["group", "disk"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model", [MODEL, TIED], ids=["untied", "tied"])
def test_weights_arrive_in_the_type_of_the_server(tmp_path: Path, kind: str, dtype: str, model: Qwen3Config) -> None:
    server, sent = WeightServer(), weights(model=model)
    asyncio.run(delivered(of_kind(kind, tmp_path, model=model, dtype=dtype), server, sent))
    assert set(server.weights[0]) == set(sent)
    assert all(torch.equal(server.weights[0][name], sent[name].to(getattr(torch, dtype))) for name in sent)
    assert ("lm_head.weight" in server.weights[0]) is not model.tie_word_embeddings
    assert server.label == "0.1" and not server.is_open


def test_every_rank_of_a_server_gets_all_weights_whole() -> None:
    server, sent = WeightServer(world=3), weights()
    asyncio.run(delivered(group(world=3), server, sent))
    assert all(torch.equal(rank[name], sent[name]) for rank in server.weights for name in sent)


def test_portions_are_bounded_and_only_the_last_labels_and_flushes() -> None:
    server, sent = WeightServer(), weights()
    asyncio.run(delivered(group(bucket_bytes=3000), server, sent))
    bodies = server.bodies(UPDATE)
    assert len(bodies) > 3
    for body in bodies:
        assert len(body["names"]) == 1 or sum(4 * torch.Size(shape).numel() for shape in body["shapes"]) <= 3000
    assert [body["flush_cache"] for body in bodies] == [False] * (len(bodies) - 1) + [True]
    assert [body.get("weight_version") for body in bodies] == [None] * (len(bodies) - 1) + ["0.1"]
    assert server.paths()[1] == "/begin_weight_update" and server.paths()[-2] == "/end_weight_update"


@pytest.mark.parametrize("kind", ["group", "disk"])
def test_kept_kv_is_not_flushed(tmp_path: Path, kind: str) -> None:
    server = WeightServer()
    asyncio.run(delivered(of_kind(kind, tmp_path), server, weights(), flush=False))
    assert not any(body.get("flush_cache") for _, body in server.asked)


def test_the_tensors_that_are_sent_are_left_as_they_are() -> None:
    server, sent = WeightServer(), weights()
    sent["model.norm.weight"] = torch.arange(32.0)[::2]
    before = {name: tensor.clone() for name, tensor in sent.items()}
    asyncio.run(delivered(group(), server, sent))
    assert all(torch.equal(sent[name], before[name]) for name in sent)
    assert torch.equal(server.weights[0]["model.norm.weight"], before["model.norm.weight"])


def test_a_second_version_goes_through_the_same_group() -> None:
    server = WeightServer()

    async def twice() -> None:
        sender = group()
        await sender.join(server)
        await sender.send(server, NEXT, weights(1), flush=True)
        await sender.send(server, Version(0, 2), weights(2), flush=True)
        await sender.close()

    asyncio.run(twice())
    assert server.label == "0.2"
    assert all(torch.equal(server.weights[0][name], tensor) for name, tensor in weights(2).items())
    assert server.paths().count("/init_weights_update_group") == 1
    assert server.paths()[-1] == "/destroy_weights_update_group"


def test_another_server_gets_a_group_of_another_name() -> None:
    first, second = WeightServer(), WeightServer()

    async def moved() -> None:
        sender = group()
        await sender.join(first)
        await delivered(sender, second, weights())

    asyncio.run(moved())
    names = [server.bodies("/init_weights_update_group")[0]["group_name"] for server in (first, second)]
    assert names[0] != names[1]
    assert second.label == "0.1" and first.label == "0.0"


@pytest.mark.parametrize("kind", ["group", "disk"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda sent: sent.pop("model.norm.weight"), "lack model.norm.weight"),
        (lambda sent: sent.update({"model.norm.weight": torch.ones(3)}), r"shape \(3,\)"),
        (lambda sent: sent.update({"surplus": torch.ones(3)}), "surplus"),
    ],
)
def test_weights_of_another_model_are_refused_before_the_server_hears_of_them(
    tmp_path: Path, kind: str, spoil: Callable[[Parameters], None], message: str
) -> None:
    server, sent = WeightServer(), weights()
    spoil(sent)
    with pytest.raises(ValueError, match=message):
        asyncio.run(delivered(of_kind(kind, tmp_path), server, sent))
    assert not {"/begin_weight_update", UPDATE, "/update_weights_from_disk"} & set(server.paths())


def test_only_the_newest_folder_stays_on_disk(tmp_path: Path) -> None:
    server = WeightServer()
    (tmp_path / "0.7-1").mkdir()

    async def updated() -> None:
        sender = of_kind("disk", tmp_path)
        await sender.join(server)
        for step in range(3):
            await sender.send(server, Version(1, step), weights(step), flush=True)
        await sender.close()

    asyncio.run(updated())
    assert [path.name for path in tmp_path.iterdir()] == [Path(server.bodies("/update_weights_from_disk")[-1]["model_path"]).name]
    assert server.label == "1.2"


@pytest.mark.parametrize("route", list(WeightRoute))
def test_configuration_chooses_the_route(tmp_path: Path, route: WeightRoute) -> None:
    sender = new_sender(
        SGLangConfig(weights=route), model=MODEL, device=Device.cpu, dtype="float32", host="127.0.0.1", world=1, folder=tmp_path
    )
    server, sent = WeightServer(), weights()
    asyncio.run(delivered(sender, server, sent))
    assert ("/update_weights_from_disk" in server.paths()) is (route is WeightRoute.disk)
    assert all(torch.equal(server.weights[0][name], sent[name]) for name in sent)


def test_nccl_is_taken_only_where_its_ranks_may_share_a_gpu() -> None:
    allowed = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    assert group_backend(Device.cuda, allowed) == "nccl"
    assert group_backend(Device.cuda, {}) == group_backend(Device.cpu, allowed) == "gloo"


@pytest.mark.parametrize("kind", ["group", "disk"])
def test_a_type_that_is_still_to_be_chosen_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UserError, match="engine.sglang.dtype"):
        of_kind(kind, tmp_path, dtype="auto")
