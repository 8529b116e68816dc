"""What engine=sglang cannot do is refused with field, value and remedy; what it can, and what does not concern it, is accepted."""

from pathlib import Path
from typing import Any

import pytest

from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.deadlines import cell_start_s, no_progress_s, switch_step_s
from gyre_hpc.config.engine_schema import Device, EngineKind, SGLangKV
from gyre_hpc.config.schema import Config, TrainerKind
from gyre_hpc.config.stored import store_config
from gyre_hpc.config.validate import validate, value_of
from gyre_hpc.errors import UserError


def served(**values: object) -> Config:
    """A Config with engine=sglang and dotted keys set (double underscore for the dot)."""
    config = Config()
    config.engine.kind = EngineKind.sglang
    for name, value in values.items():
        group, _, key = name.rpartition("__")
        setattr(value_of(config, group.replace("__", ".")) if group else config, key, value)
    return config


@pytest.mark.parametrize(
    ("values", "field", "remedy"),
    [
        ({"trainer__kind": TrainerKind.timed}, "trainer.kind", "trainer=timed, or neither"),
        ({"algo__top_p": 0.9}, "algo.top_p", "1 with it, or engine=embedded"),
        ({"algo__top_k": 20}, "algo.top_k", "0 with it, or engine=embedded"),
        ({"engine__deterministic": True, "engine__sglang__device": Device.cpu}, "engine.deterministic", "device=cuda"),
        ({"engine__deterministic": True, "engine__keep_kv": True}, "engine.keep_kv", "false"),
        ({"engine__sglang__dtype": "fp8"}, "engine.sglang.dtype", "bfloat16"),
        ({"engine__sglang__stream_tokens": 0}, "engine.sglang.stream_tokens", "greater than 0"),
        ({"engine__sglang__start_deadline_s": 0.0}, "engine.sglang.start_deadline_s", "greater than 0"),
        ({"engine__sglang__update_deadline_s": -1.0}, "engine.sglang.update_deadline_s", "greater than 0"),
        ({"engine__sglang__orphan_s": float("inf")}, "engine.sglang.orphan_s", "finite"),
        ({"engine__sglang__flags": {"--tp": 2}}, "engine.sglang.flags.--tp", "without the leading dashes"),
        ({"engine__sglang__flags": {"mem_fraction": 1}}, "engine.sglang.flags.mem_fraction", "without the leading dashes"),
        ({"engine__sglang__flags": {"log-level": None}}, "engine.sglang.flags.log-level", "true"),
        ({"engine__sglang__environ": {"A=B": "1"}}, "engine.sglang.environ.A=B", "no name"),
        ({"engine__sglang__kv": SGLangKV.pd, "cluster__cells": 3}, "cluster.cells", "even"),
        ({"engine__sglang__kv": SGLangKV.pd, "cluster__cells": 1}, "cluster.cells", "even"),
        ({"engine__sglang__kv": SGLangKV.shared, "engine__sglang__storage": ""}, "engine.sglang.storage", "mooncake"),
        ({"engine__sglang__kv": SGLangKV.shared, "engine__keep_kv": True}, "engine.keep_kv", "does not travel"),
    ],
)
def test_what_sglang_cannot_do_is_refused_by_name(values: dict[str, Any], field: str, remedy: str):
    with pytest.raises(UserError, match=remedy) as caught:
        validate(served(**values))
    assert caught.value.field == field


@pytest.mark.parametrize(("name", "value"), [("start_deadline_s", -1.0), ("stream_tokens", 0), ("dtype", "int8")])
def test_a_value_that_can_never_be_is_refused_also_with_another_engine(name: str, value: object):
    config = Config()
    assert config.engine.kind is EngineKind.embedded
    setattr(config.engine.sglang, name, value)
    with pytest.raises(UserError) as caught:
        validate(config)
    assert caught.value.field == f"engine.sglang.{name}"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"transport__kv": "mooncake"},
        {"transport__kv": "none"},
        {"engine__deterministic": True},
        {"engine__deterministic": True, "engine__sglang__device": Device.cuda, "cluster__ranks_per_cell": 2},
        {"engine__sglang__kv": SGLangKV.pd, "cluster__cells": 2},
        {"engine__sglang__kv": SGLangKV.shared, "cluster__cells": 3},
        {"engine__sglang__flags": {"mem-fraction-static": 0.8, "enable-metrics": True, "cuda-graph-bs": [1, 2]}},
        {"engine__sglang__environ": {"NCCL_DEBUG": "INFO"}},
    ],
)
def test_what_sglang_can_do_or_does_not_concern_it_is_accepted(values: dict[str, Any]):
    validate(served(**values))


@pytest.mark.parametrize("size", [0, 1, 4])
def test_its_server_divides_the_model_among_all_ranks_whatever_the_trainer_does(size: int):
    good = {"cluster__ranks_per_cell": 4, "cluster__tensor_parallel": size, "model__num_heads": 8, "model__num_kv_heads": 4}
    validate(served(**good))
    for name, value in (("num_heads", 6), ("intermediate_size", 190)):
        with pytest.raises(UserError, match=r"multiple of .*4 ranks") as caught:
            validate(served(**good | {"model__num_kv_heads": 2, f"model__{name}": value}))
        assert caught.value.field in (f"model.{name}", "model.num_kv_heads")
    if size == 1:  # each trains on a copy of its own; the server holds a key-value head on several of its ranks
        validate(served(**good | {"model__num_kv_heads": 2}))


def test_flags_come_from_the_command_line_as_they_are():
    flags = "+engine.sglang.flags={mem-fraction-static: 0.8, enable-metrics: true, json-model-override-args: {a: {b: 1}}}"
    config = compose_config(["engine=sglang", flags])
    assert config.engine.sglang.flags == {
        "mem-fraction-static": 0.8,
        "enable-metrics": True,
        "json-model-override-args": {"a": {"b": 1}},
    }
    assert compose_config(["engine=sglang", flags.removeprefix("+")]).engine.sglang.flags == config.engine.sglang.flags


def test_flags_and_variables_of_its_server_may_change_on_resume(tmp_path: Path):
    store_config(compose_config(["engine=sglang", "+engine.sglang.flags.mem-fraction-static=0.8"]), tmp_path / "config.yaml")
    changes = ["+engine.sglang.flags.mem-fraction-static=0.7", "+engine.sglang.environ.NCCL_DEBUG=INFO"]
    config = compose_config([f"resume={tmp_path}", *changes])
    assert config.engine.sglang.flags == {"mem-fraction-static": 0.7}
    assert config.engine.sglang.environ == {"NCCL_DEBUG": "INFO"}


def test_a_cell_with_a_server_has_the_time_that_the_server_takes_and_others_do_not():
    own, foreign = Config(), served()
    assert cell_start_s(own) == own.cluster.start_deadline_s
    assert cell_start_s(foreign) == own.cluster.start_deadline_s + foreign.engine.sglang.start_deadline_s
    assert switch_step_s(foreign) == own.cluster.switch_deadline_s + foreign.engine.sglang.update_deadline_s
    assert no_progress_s(foreign) > cell_start_s(foreign)
    assert no_progress_s(own) == 300
