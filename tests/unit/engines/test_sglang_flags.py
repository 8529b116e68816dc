"""From configuration to a server's command line and environment."""

import json
from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.engine_schema import Device, EngineConfig, EngineKind, SGLangConfig, SGLangKV
from gyre_hpc.engines.sglang.flags import create_launch, room_for
from gyre_hpc.engines.sglang.model_folder import write_model_folder
from gyre_hpc.engines.sglang.parts import Launch, Nodes
from gyre_hpc.engines.sglang.site import Part, Site
from gyre_hpc.engines.sglang.watch import ANSWER_S
from gyre_hpc.errors import UserError
from gyre_hpc.models.qwen3_config import Qwen3Config, read_config

MODEL = Qwen3Config(
    vocab_size=512, hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16, intermediate_size=128, max_context=2048
)


def launch(
    *,
    device: Device = Device.cpu,
    world: int = 1,
    nodes: Nodes | None = None,
    inherited: dict[str, str] | None = None,
    part: Part = Part.whole,
    deterministic: bool = False,
    keep_kv: bool = False,
    interface: str = "127.0.0.1",
    **sglang: Any,
) -> Launch:
    return create_launch(
        EngineConfig(kind=EngineKind.sglang, deterministic=deterministic, keep_kv=keep_kv, sglang=SGLangConfig(**sglang)),
        Site(
            folder=Path("/s"),
            cache=Path("/c"),
            world=world,
            nodes=nodes or Nodes(),
            part=part,
            bootstrap_port=9000,
            interface=interface,
        ),
        max_context=2048,
        model_folder=Path("/m"),
        device=device,
        python=Path("/e/bin/python"),
        program=("-m", "sglang.launch_server"),
        inherited=inherited or {},
    )


def flags(made: Launch) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {}
    name = ""
    for argument in made.flags:
        if argument.startswith("--"):
            name = argument[2:]
            assert name not in found, f"{name} is there twice"
            found[name] = True
        else:
            found[name] = argument
    return found


def test_the_configuration_is_in_the_flags() -> None:
    found = flags(launch(stream_tokens=5))
    expected = {
        "model-path": "/m",
        "context-length": "2056",
        "stream-interval": "5",
        "page-size": "16",
        "max-total-tokens": str(65536 + 2 * 16),
        "max-running-requests": "64",
        "chunked-prefill-size": "512",
        "dtype": "float32",
        "tp-size": "1",
        "log-level": "warning",
        "incremental-streaming-output": True,
        "skip-tokenizer-init": True,
    }
    assert expected.items() <= found.items()
    assert not {"port", "api-key", "nnodes", "enable-memory-saver"} & set(found)


def test_each_node_of_a_cell_knows_its_place() -> None:
    first, second = (launch(world=8, nodes=Nodes(number=number, count=2, address="10.0.0.1:5000")) for number in (0, 1))
    assert {"tp-size": "8", "nnodes": "2", "node-rank": "0", "dist-init-addr": "10.0.0.1:5000"}.items() <= flags(first).items()
    assert {"node-rank": "1", "log-level": "error"}.items() <= flags(second).items()
    assert first.digest() != second.digest()


def test_on_cuda_memory_can_be_given_back_and_draws_can_be_repeated() -> None:
    found = flags(launch(device=Device.cuda, deterministic=True))
    assert found["enable-memory-saver"] is found["enable-deterministic-inference"] is True and found["dtype"] == "bfloat16"
    assert "attention-backend" not in found and "mem-fraction-static" not in found


def test_on_cpu_nothing_claims_to_be_deterministic() -> None:
    with pytest.raises(UserError, match="engine.deterministic"):
        launch(deterministic=True)


def test_users_flags_win() -> None:
    users = {"max-running-requests": 1, "mem_fraction_static": 0.3, "--enable-metrics": True, "chunked-prefill-size": False, "list": [1, 2]}
    found = flags(launch(flags=users | {"json-model-override-args": {"a": 1}}))
    assert found["max-running-requests"] == "1" and found["mem-fraction-static"] == "0.3" and found["enable-metrics"] is True
    assert "chunked-prefill-size" not in found
    assert json.loads(str(found["json-model-override-args"])) == {"a": 1}
    assert launch(flags=users).flags[-3:] == ("--list", "1", "2")


@pytest.mark.parametrize(
    "name",
    [
        "port",
        "--api-key",
        "tp_size",
        "tp",
        "tensor-parallel-size",
        "tensor-par",
        "nnodes",
        "model",
        "nccl-init",
        "incremental-streaming",
        "config",
        "max-total",
        "ssl-keyfile",
        "allow-auto-truncate",
    ],
)
def test_flags_of_the_protocol_are_refused_by_any_of_their_names(name: str) -> None:
    with pytest.raises(UserError, match=f"engine.sglang.flags.{name}='7'") as refused:
        launch(flags={name: "7"})
    assert refused.value.remedy.startswith("leave --")


def test_nothing_of_torchrun_or_another_python_reaches_the_server() -> None:
    inherited = {
        "PATH": "/bin",
        "NCCL_SOCKET_IFNAME": "ib0",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "GROUP_RANK": "0",
        "ROLE_RANK": "0",
        "PET_NNODES": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "9",
        "PYTHONPATH": "/ours",
        "PYTHONSAFEPATH": "1",
        "VIRTUAL_ENV": "/ours",
        "GYRE_PARENT_PID": "77",
    }
    environ = dict(launch(inherited=inherited).environ)
    assert {name: environ.pop(name, None) for name in ("PATH", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES")} == {
        "PATH": "/bin",
        "NCCL_SOCKET_IFNAME": "ib0",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    assert environ.pop("OMP_NUM_THREADS") == "1"
    assert not set(environ) & set(inherited)
    assert environ["TMPDIR"] == "/s/tmp"


def test_a_restarted_leader_asks_for_the_same_launch() -> None:
    first = launch(inherited={"PATH": "/bin", "GYRE_PARENT_PID": "1", "TORCHELASTIC_RESTART_COUNT": "0"})
    again = launch(inherited={"PATH": "/bin", "GYRE_PARENT_PID": "2", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert first.digest() == again.digest()
    assert first.digest() != launch(inherited={"PATH": "/usr/bin"}).digest()


def test_a_server_has_the_time_to_say_that_it_is_well_which_its_watch_gives_it() -> None:
    assert float(launch().environ["SGLANG_HEALTH_CHECK_TIMEOUT"]) == ANSWER_S


def test_users_environment_wins_but_for_the_place_of_sockets() -> None:
    assert launch(environ={"OMP_NUM_THREADS": "8"}).environ["OMP_NUM_THREADS"] == "8"
    with pytest.raises(UserError, match=r"engine\.sglang\.environ\.TMPDIR='/a/place': .* set paths\.scratch"):
        launch(environ={"TMPDIR": "/a/place"})


@pytest.mark.parametrize(("page", "expected"), [(1, 8), (2, 8), (16, 32), (64, 128)])
def test_a_server_has_room_beside_the_longest_call(page: int, expected: int) -> None:
    """It rounds the prompt up, wants one page more, and never draws the last tokens of its room."""
    assert room_for(1000 * page, page) == 1000 * page + expected
    reserved = room_for(1000 * page, page, Part.decode) - 1000 * page
    assert 512 + expected <= reserved < 512 + expected + page and reserved % page == 0


def test_a_decoding_server_has_room_for_what_it_reserves() -> None:
    found = flags(launch(kv=SGLangKV.pd, part=Part.decode))
    assert int(str(found["max-total-tokens"])) >= 65536 + int(str(found["num-reserved-decode-tokens"]))
    assert "num-reserved-decode-tokens" not in flags(launch(kv=SGLangKV.pd, part=Part.prefill))


def test_a_pair_of_cells_prefills_and_decodes() -> None:
    prefill, decode = (launch(kv=SGLangKV.pd, part=part) for part in (Part.prefill, Part.decode))
    assert {"disaggregation-mode": "prefill", "disaggregation-bootstrap-port": "9000"}.items() <= flags(prefill).items()
    assert {"disaggregation-mode": "decode", "disaggregation-decode-enable-radix-cache": True}.items() <= flags(decode).items()
    assert prefill.environ["SGLANG_DISAGG_PREFILL_EARLY_SEND_CACHED_PREFIX"] == "false"
    assert prefill.environ["MC_FORCE_TCP"] == "1" and "MC_FORCE_TCP" not in launch(device=Device.cuda).environ


def test_of_a_pair_the_half_that_prefills_is_reached_from_other_nodes_and_nobody_else() -> None:
    """SGLang has one flag for its API and its bootstrap server."""
    prefill, decode = (launch(kv=SGLangKV.pd, part=part, interface="10.0.0.7") for part in (Part.prefill, Part.decode))
    assert prefill.host == flags(prefill)["host"] == "10.0.0.7"
    assert decode.host == flags(decode)["host"] == "127.0.0.1"
    assert prefill.environ["SGLANG_HOST_IP"] == decode.environ["SGLANG_HOST_IP"] == "10.0.0.7"
    alone = launch(interface="10.0.0.7")
    assert alone.host == flags(alone)["host"] == "127.0.0.1" and "SGLANG_HOST_IP" not in alone.environ
    assert launch(kv=SGLangKV.pd, part=Part.prefill).host == "127.0.0.1"


@pytest.mark.parametrize("kv", [SGLangKV.pd, SGLangKV.shared])
def test_kv_of_older_weights_does_not_leave_its_server(kv: SGLangKV) -> None:
    with pytest.raises(UserError, match="engine.keep_kv"):
        launch(kv=kv, part=Part.decode, device=Device.cuda, keep_kv=True)


def test_shared_kv_names_its_storage() -> None:
    made = launch(device=Device.cuda, kv=SGLangKV.shared, storage="file", storage_config={"path": "/kv"})
    found = flags(made)
    assert found["enable-hierarchical-cache"] is True and found["hicache-storage-backend"] == "file"
    assert json.loads(str(found["hicache-storage-backend-extra-config"])) == {"path": "/kv"}
    with pytest.raises(UserError, match="engine.sglang.kv='shared'"):
        launch(kv=SGLangKV.shared)


def test_the_models_folder_has_its_shape_and_no_end_of_text(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "m", MODEL, dtype="bfloat16")
    assert read_config(folder) == MODEL
    content = json.loads((folder / "config.json").read_text())
    assert content["torch_dtype"] == "bfloat16" and "eos_token_id" not in content
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_a_folder_that_says_the_same_already_is_left_alone(tmp_path: Path) -> None:
    write_model_folder(tmp_path, MODEL, dtype="float32")
    before = (tmp_path / "config.json").stat().st_ino
    write_model_folder(tmp_path, MODEL, dtype="float32")
    assert (tmp_path / "config.json").stat().st_ino == before
    write_model_folder(tmp_path, MODEL, dtype="bfloat16")
    assert (tmp_path / "config.json").stat().st_ino != before
