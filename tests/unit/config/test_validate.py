"""Every cross-field check refuses with field, value and remedy, and accepts what works."""

import pytest

from gyre_hpc.config import validate as rules
from gyre_hpc.config.compose import known_keys
from gyre_hpc.config.schema import Config, EngineKind, SchedulerMode, TrainerKind
from gyre_hpc.config.validate import validate, value_of
from gyre_hpc.errors import UserError

TIMED = {"engine__kind": EngineKind.timed, "trainer__kind": TrainerKind.timed}


def changed(**values: object) -> Config:
    """The default Config with dotted keys set (double underscore for the dot)."""
    config = Config()
    for name, value in values.items():
        group, _, key = name.rpartition("__")
        setattr(value_of(config, group.replace("__", ".")) if group else config, key, value)
    return config


def test_the_defaults_are_valid():
    validate(Config())


@pytest.mark.parametrize("key", [*rules.POSITIVE, *rules.NOT_NEGATIVE, *rules.SHARES])
def test_every_range_names_a_key_of_the_schema_and_refuses_less_than_nothing(key: str):
    assert key in set(known_keys())
    with pytest.raises(UserError) as caught:
        validate(changed(**{key.replace(".", "__"): -1}))
    assert caught.value.field == key


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"scheduler__dwell_s": float("inf")}, "scheduler.dwell_s"),
        ({"trainer__lr": float("inf")}, "trainer.lr"),
        ({"algo__truncated_is": float("nan")}, "algo.truncated_is"),
        ({"transport__deadline_s": 1e12}, "transport.deadline_s"),
        ({"seed": 1 << 63}, "seed"),
        ({"algo__updates": 1 << 64}, "algo.updates"),
        ({"cluster__cells": 100_000_000}, "cluster.cells"),
        ({"evaluation__tasks": 1 << 30}, "evaluation.tasks"),
        ({"network__port_range": "40000-40006"}, "network.port_range"),
        ({"cluster__cells_per_process": 2}, "cluster.cells_per_process"),
        ({"cluster__cells_per_process": 1 << 20}, "cluster.cells_per_process"),
        ({**TIMED, "cluster__cells_per_process": 2, "cluster__ranks_per_cell": 2}, "cluster.cells_per_process"),
        ({"suite__cpus": 64}, "suite.cpus"),
        ({"suite__memory_mb": 1 << 20}, "suite.memory_mb"),
        ({"network__port_range": "80-90"}, "network.port_range"),
        ({"network__port_range": "9000-8000"}, "network.port_range"),
        ({"network__interface": ""}, "network.interface"),
        ({"engine__kind": EngineKind.timed}, "trainer.kind"),
        ({"transport__backend": "mpi"}, "transport.backend"),
        ({"transport__groups": "torchft"}, "transport.groups"),
        ({"transport__kv": "pigeon"}, "transport.kv"),
        ({"transport__kv": "memory"}, "transport.kv"),
        ({"scheduler__mode": SchedulerMode.async_split, "scheduler__split": 4}, "scheduler.split"),
        ({"scheduler__mode": SchedulerMode.async_split, "cluster__cells": 1}, "scheduler.split"),
        ({"model__num_heads": 3}, "model.num_kv_heads"),
        ({"model__head_dim": 15}, "model.head_dim"),
        ({"engine__kv_tokens": 65537}, "engine.kv_tokens"),
        ({"engine__kv_tokens": 256}, "engine.kv_tokens"),
        ({"algo__group_size": 1}, "algo.group_size"),
        ({"harness__name": ""}, "harness.name"),
        ({"suite__hard_deadline_s": 59.0}, "suite.hard_deadline_s"),
        ({"harness__context_tokens": 512}, "harness.context_tokens"),
        ({"harness__max_output_tokens": 512}, "harness.max_output_tokens"),
        ({"warm_start__executions": 5}, "warm_start.epochs"),
        ({"warm_start__executions": 5, "warm_start__epochs": 1, "warm_start__batch_tokens": 100}, "warm_start.batch_tokens"),
        ({"evaluation__tasks": 0}, "evaluation.tasks"),
        ({"checkpoint__every": 3}, "checkpoint.every"),
        ({"paths__scratch": "/" + "x" * 60}, "paths.scratch"),
    ],
)
def test_what_cannot_work_together_is_refused(values: dict[str, object], field: str):
    with pytest.raises(UserError) as caught:
        validate(changed(**values))
    assert caught.value.field == field
    assert caught.value.remedy
    assert repr(caught.value.value) in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"network__port_range": "9000-9100"},
        {"scheduler__mode": SchedulerMode.async_split, "scheduler__split": 3},
        {"evaluation__tasks": 0, "evaluation__before": False, "evaluation__after": False},
        {"checkpoint__every": 3, "checkpoint__before_publish": False},
        {"algo__top_p": 1.0, "warm_start__sloppiness": 0.0},
        {"cluster__cells": 1},
        {"transport__kv": "memory", **TIMED},
        {"cluster__cells_per_process": 64, **TIMED},
    ],
)
def test_what_works_is_accepted(values: dict[str, object]):
    validate(changed(**values))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"engine__keep_kv": True}, "engine.keep_kv"),
        ({"engine__kind": EngineKind.timed, "trainer__kind": TrainerKind.timed}, "engine.deterministic"),
        ({"cluster__ranks_per_cell": 2}, "cluster.tensor_parallel"),
    ],
)
def test_what_breaks_the_deterministic_mode_is_refused_by_name_and_else_welcome(values: dict[str, object], field: str):
    with pytest.raises(UserError) as caught:
        validate(changed(engine__deterministic=True, **values))
    assert caught.value.field == field
    validate(changed(**values))
    validate(
        changed(engine__deterministic=True, trainer__lr=0.0, algo__temperature=0.7, cluster__ranks_per_cell=2, cluster__tensor_parallel=1)
    )


@pytest.mark.parametrize(
    ("values", "field", "remedy"),
    [
        ({"cluster__tensor_parallel": 2}, "cluster.tensor_parallel", "ranks_per_cell=4"),
        ({"model__num_heads": 6, "model__num_kv_heads": 2}, "model.num_heads", "multiple of .*4 ranks"),
        ({"model__num_kv_heads": 2}, "model.num_kv_heads", "tensor_parallel=1"),
        ({"model__intermediate_size": 190}, "model.intermediate_size", "multiple of .*4 ranks"),
    ],
)
def test_a_model_that_the_ranks_cannot_share_is_refused_by_name(values: dict[str, object], field: str, remedy: str):
    good = {"cluster__ranks_per_cell": 4, "model__num_heads": 8, "model__num_kv_heads": 4, "model__intermediate_size": 192}
    with pytest.raises(UserError, match=remedy) as caught:
        validate(changed(**good | values))
    assert caught.value.field == field
    for size in (0, 4):
        validate(changed(**good, cluster__tensor_parallel=size))
    if "cluster__tensor_parallel" not in values:
        validate(changed(**good | values, cluster__tensor_parallel=1))
