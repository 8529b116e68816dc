"""Which cells serve together."""

from gyre_hpc.config.engine_schema import EngineConfig, EngineKind, SGLangConfig, SGLangKV
from gyre_hpc.config.pairs import pairs_of, prefiller_of, prefills
from gyre_hpc.config.schema import ClusterConfig, Config


def config(cells: int, kind: EngineKind = EngineKind.sglang, kv: SGLangKV = SGLangKV.pd) -> Config:
    return Config(cluster=ClusterConfig(cells=cells), engine=EngineConfig(kind=kind, sglang=SGLangConfig(kv=kv)))


def test_even_cells_prefill_for_the_next_one():
    four = config(4)
    assert pairs_of(four) == (("cell-0", "cell-1"), ("cell-2", "cell-3"))
    assert [prefills(four, f"cell-{index}") for index in range(4)] == [True, False, True, False]
    assert [prefiller_of(four, f"cell-{index}") for index in range(4)] == [None, "cell-0", None, "cell-2"]


def test_other_engines_and_other_kv_have_no_pairs():
    for other in (config(4, kind=EngineKind.embedded), config(4, kv=SGLangKV.shared), config(4, kv=SGLangKV.none)):
        assert pairs_of(other) == () and not prefills(other, "cell-0") and prefiller_of(other, "cell-1") is None
