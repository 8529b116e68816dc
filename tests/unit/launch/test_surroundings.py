"""What a run would fail for in this place is said at the door, before anything is written."""

from pathlib import Path

import pytest

from gyre_hpc.config.schema import Config, PathsConfig, SandboxKind
from gyre_hpc.config.validate import value_of
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import prepare
from gyre_hpc.launch.surroundings import check_surroundings


def config_for(root: Path, **values: object) -> Config:
    config = Config(paths=PathsConfig(run=str(root / "run"), cache=str(root / "cache")))
    for name, value in values.items():
        group, _, key = name.partition("__")
        setattr(value_of(config, group), key, value)
    return config


def test_the_defaults_find_what_they_need(tmp_path: Path):
    check_surroundings(config_for(tmp_path))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"suite__name": "nosuch"}, "suite.name"),
        ({"harness__name": "nosuch"}, "harness.name"),
        ({"model__tokenizer": "nosuch"}, "model.tokenizer"),
        ({"model__template": "nosuch"}, "model.tem"),
        ({"model__path": "/nosuch"}, "model.path"),
        ({"model__path": "/nosuch", "model__tokenizer": "/nosuch", "model__template": "own"}, "model.path"),
        ({"network__interface": "192.0.2.1"}, "network.interface"),
        ({"network__interface": "no such address"}, "network.interface"),
        ({"paths__cache": "/proc/nosuch"}, "paths.cache"),
        ({"paths__scratch": "/proc/nosuch"}, "paths.scratch"),
    ],
)
def test_what_is_missing_here_is_refused_and_no_run_folder_is_left(tmp_path: Path, values: dict[str, object], field: str):
    with pytest.raises(UserError) as caught:
        prepare(config_for(tmp_path, **values), 0.0)
    assert field in caught.value.field
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [({"transport__backend": "nccl"}, "transport.backend"), ({"transport__kv_protocol": "rdma"}, "transport.kv_protocol")],
)
def test_a_device_that_is_not_here_is_refused_instead_of_going_on_over_something_else(
    tmp_path: Path, values: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    no_devices, a_device = tmp_path / "none", tmp_path / "some" / "mlx5_0"
    a_device.mkdir(parents=True)
    monkeypatch.setattr("gyre_hpc.transport.mooncake_needs.RDMA_DEVICES", no_devices)
    monkeypatch.setattr("gyre_hpc.launch.surroundings._GPUS", (str(no_devices),))
    config = config_for(tmp_path, transport__kv="mooncake", **values)
    with pytest.raises(UserError) as caught:
        check_surroundings(config)
    assert caught.value.field == field
    monkeypatch.setattr("gyre_hpc.transport.mooncake_needs.RDMA_DEVICES", a_device.parent)
    monkeypatch.setattr("gyre_hpc.launch.surroundings._GPUS", (str(a_device),))
    check_surroundings(config)


def real_harness(root: Path, **values: object) -> Config:
    alone = {"harness__name": "codex", "harness__max_calls": 0, "harness__max_output_tokens": 0, "harness__context_tokens": 0}
    return config_for(root, **(alone | {"model__max_context": 32768} | values))


@pytest.mark.parametrize(
    ("values", "field"),
    [({"model__max_context": 512}, "model.max_context"), ({"harness__context_tokens": 600}, "harness.context_tokens"), ({}, "")],
)
def test_a_window_in_which_a_harness_cannot_even_ask_is_refused(
    tmp_path: Path, values: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gyre_hpc.launch.surroundings.is_installed", lambda folder: True)
    if not field:
        check_surroundings(real_harness(tmp_path))
        return
    with pytest.raises(UserError, match="first request of codex") as caught:
        check_surroundings(real_harness(tmp_path, **values))
    assert caught.value.field == field


def test_a_warm_start_with_a_harness_that_the_scripted_agents_do_not_speak_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gyre_hpc.launch.surroundings.is_installed", lambda folder: True)
    config = real_harness(tmp_path, warm_start__executions=4)
    with pytest.raises(UserError, match="warm_start.executions=4: .*codex set warm_start.executions=0 warm_start.epochs=0"):
        check_surroundings(config)
    config.warm_start.executions = 0
    check_surroundings(config)


@pytest.mark.parametrize(
    ("command", "readable", "field"),
    [
        ("/nosuch/agent --url {base_url}", [], "harness.command"),
        ("/usr", [], "harness.command"),
        ("/usr/bin/env --url {base_url}", ["/nosuch"], "harness.readable"),
        ("/usr/bin/env agent", [], ""),
        ("agent-on-the-path", [], ""),
        ("{workspace}/agent", ["/usr"], ""),
    ],
)
def test_a_command_that_is_not_here_is_refused(tmp_path: Path, command: str, readable: list[str], field: str):
    config = config_for(
        tmp_path, harness__name="command", harness__command=command, harness__readable=readable,
        harness__max_calls=0, harness__max_output_tokens=0,
    )  # fmt: skip
    if not field:
        check_surroundings(config)
        return
    with pytest.raises(UserError) as caught:
        check_surroundings(config)
    assert caught.value.field == field


def test_a_sandbox_that_was_asked_for_and_does_not_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="sandbox.kind"):
        check_surroundings(config_for(tmp_path, sandbox__kind=SandboxKind.bwrap))
    check_surroundings(config_for(tmp_path))


def test_a_long_tmpdir_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 60)))
    with pytest.raises(UserError, match="paths.scratch=.*TMPDIR"):
        check_surroundings(config_for(tmp_path))
