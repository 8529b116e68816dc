"""The parts of an SGLang engine, put together for one cell from its configuration."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gyre_hpc.config.engine_schema import Device, EngineConfig, SGLangConfig, SGLangKV, WeightRoute
from gyre_hpc.config.schema import ModelConfig
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.sglang.build import create_server, create_sglang_engine, launch_here
from gyre_hpc.engines.sglang.engine import SGLangEngine
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.engines.sglang.site import Part, Site
from gyre_hpc.errors import UserError
from gyre_hpc.models.qwen3_config import from_model_config
from tests.fakes.memory_store import MemoryStore

MODEL = from_model_config(ModelConfig(), 300)
TWO_NODES = Nodes(count=2, address="node-0:4000")


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """Looks like one; never started here."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    return str(tmp_path / "env")


Build = Callable[..., SGLangEngine]


@pytest.fixture
def build() -> Iterator[Build]:
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as folder:

        def built(config: EngineConfig, nodes: Nodes | None = None) -> SGLangEngine:
            return create_sglang_engine(
                config,
                Site(folder=Path(folder), cache=Path("/nonexistent"), world=2, nodes=nodes or Nodes()),
                model=MODEL,
                store=MemoryStore(),
                run_token="token",
                port=0,
                rank=0,
                decode=None,
            )

        yield built


@pytest.mark.parametrize(
    ("device", "deterministic", "kv", "expected"),
    [
        (Device.cpu, False, SGLangKV.none, EngineCapabilities(kv="none", sampling="own")),
        (Device.cuda, False, SGLangKV.none, EngineCapabilities(kv="none", sampling="own")),
        (Device.cuda, True, SGLangKV.none, EngineCapabilities(kv="none", sampling="counter")),
        (Device.cuda, False, SGLangKV.shared, EngineCapabilities(kv="shared", sampling="own")),
    ],
)
def test_what_the_rest_may_count_on_follows_from_device_and_kv(
    build: Build, environment: str, device: Device, deterministic: bool, kv: SGLangKV, expected: EngineCapabilities
) -> None:
    sglang = SGLangConfig(environment=environment, device=device, kv=kv)
    assert build(EngineConfig(deterministic=deterministic, sglang=sglang)).capabilities == expected


def test_without_an_environment_the_error_says_what_to_run(build: Build) -> None:
    with pytest.raises(UserError, match="gyre engine install sglang"):
        build(EngineConfig(sglang=SGLangConfig(device=Device.cpu)))


def test_weights_by_disk_need_one_node(build: Build, environment: str) -> None:
    sglang = SGLangConfig(environment=environment, device=Device.cpu, weights=WeightRoute.disk)
    assert build(EngineConfig(sglang=sglang)).failure() is None
    with pytest.raises(UserError, match=r"engine\.sglang\.weights"):
        build(EngineConfig(sglang=sglang), TWO_NODES)


def test_every_node_starts_its_part_of_one_server(environment: str, tmp_path: Path) -> None:
    config = EngineConfig(sglang=SGLangConfig(environment=environment, device=Device.cpu, launcher="/a/launcher.py"))
    launches = [
        launch_here(
            config,
            Site(folder=tmp_path / str(number), cache=tmp_path, world=2, nodes=Nodes(number=number, count=2, address="node-0:4000")),
            model=MODEL,
        )
        for number in range(2)
    ]
    for number, launch in enumerate(launches):
        assert launch.program == ("/a/launcher.py",)
        flags = " ".join(launch.flags)
        assert f"--nnodes 2 --node-rank {number} --dist-init-addr node-0:4000" in flags and "--tp-size 2" in flags
        assert (tmp_path / str(number) / "model" / "config.json").is_file()
    alone = launch_here(
        EngineConfig(sglang=SGLangConfig(environment=environment, device=Device.cpu, kv=SGLangKV.pd)),
        Site(folder=tmp_path, cache=tmp_path, part=Part.prefill, bootstrap_port=4001),
        model=MODEL,
    )
    assert alone.program == ("-m", "sglang.launch_server")
    with pytest.raises(UserError, match="cells of one node make pairs"):
        create_server(
            EngineConfig(sglang=SGLangConfig(environment=environment, device=Device.cpu, kv=SGLangKV.pd)),
            Site(
                folder=tmp_path,
                cache=tmp_path,
                world=2,
                nodes=Nodes(number=1, count=2, address="node-0:4000"),
                part=Part.prefill,
            ),
            model=MODEL,
        )
    assert "--disaggregation-mode prefill" in " ".join(alone.flags) and "--disaggregation-bootstrap-port 4001" in " ".join(alone.flags)
