"""Which half of a pair a cell is, and that its bootstrap port stays as long as its server may."""

from pathlib import Path

import pytest

from gyre_hpc.cell.half import Pairing
from gyre_hpc.config.engine_schema import EngineConfig, EngineKind, SGLangConfig, SGLangKV
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import ClusterConfig, Config, PathsConfig
from gyre_hpc.engines.sglang.parts import Nodes
from gyre_hpc.engines.sglang.site import Part
from gyre_hpc.ports import listen
from gyre_hpc.shell.arguments import Birth


def pairing(folder: Path, name: str, kv: SGLangKV = SGLangKV.pd) -> Pairing:
    engine = EngineConfig(kind=EngineKind.sglang, sglang=SGLangConfig(kv=kv))
    config = Config(cluster=ClusterConfig(cells=2), engine=engine, paths=PathsConfig(scratch=str(folder)))
    birth = Birth(
        name=name, attempt=1, incarnation=1, supervisor_url="", folder=RunFolder(folder / "run"), config=config, run_token="t"
    )  # fmt: skip
    (folder / "run").mkdir(exist_ok=True)
    return Pairing.of(birth, Nodes(), lambda cell: None)


def test_the_first_of_two_prefills_and_the_other_one_asks_it(tmp_path: Path):
    first, second = (pairing(tmp_path, name) for name in ("cell-0", "cell-1"))
    assert first.half.part is Part.prefill and first.half.bootstrap_port > 0 and first.client is None
    assert second.half.part is Part.decode and second.half.prefill is second.client is not None
    whole = pairing(tmp_path, "cell-0", SGLangKV.none)
    assert whole.half.part is Part.whole and not whole.half.bootstrap_port and whole.client is None


def test_a_successor_has_the_bootstrap_port_of_the_server_it_may_find(tmp_path: Path):
    first = pairing(tmp_path, "cell-0")
    with first.starting(), listen(first.host, first.half.bootstrap_port):
        assert pairing(tmp_path, "cell-0").half == first.half


def test_a_new_server_has_a_new_bootstrap_port(tmp_path: Path):
    """The other half remembers the ranks of a server by it."""
    first = pairing(tmp_path, "cell-0")
    assert first.port_file is not None
    with listen(first.host) as other:
        gone = other.getsockname()[1]
    first.port_file.write_text(str(gone))
    with listen(first.host, first.half.bootstrap_port):
        again = pairing(tmp_path, "cell-0")
    assert int(first.port_file.read_text()) == again.half.bootstrap_port != gone


def test_a_start_that_failed_costs_the_port(tmp_path: Path):
    first = pairing(tmp_path, "cell-0")
    assert first.port_file is not None and first.port_file.is_file()
    with pytest.raises(OSError, match="taken"), first.starting():
        raise OSError("taken")
    assert not first.port_file.exists()
    first.port_file.write_text("nonsense")
    again = pairing(tmp_path, "cell-0")
    assert again.half.bootstrap_port == int(first.port_file.read_text())
