"""What a run with SGLang would fail for in this place is said at the door."""

import re
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.engine_schema import Device, EngineKind, SGLangKV
from gyre_hpc.config.schema import Config, PathsConfig
from gyre_hpc.config.validate import value_of
from gyre_hpc.engines.sglang.environment import VERSION, version_in
from gyre_hpc.errors import UserError
from gyre_hpc.launch.surroundings import check_surroundings


def environment(root: Path, said: str) -> Path:
    """Its Python answers whatever it is asked by these lines of a shell."""
    python = root / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\n{said}\n")
    python.chmod(0o755)
    return root / "environment"


def config_for(root: Path, **values: object) -> Config:
    """SGLang on CPU in an environment that is there."""
    environment(root, f"echo {VERSION}")
    config = Config(paths=PathsConfig(run=str(root / "run"), cache=str(root / "cache"), scratch="/tmp"))
    config.engine.kind, config.engine.sglang.device = EngineKind.sglang, Device.cpu
    config.engine.sglang.environment = str(root / "environment")
    for name, value in values.items():
        group, _, key = name.rpartition("__")
        setattr(value_of(config, group.replace("__", ".")), key, value)
    return config


def test_what_it_needs_is_here_also_with_kv_transports_that_do_not_concern_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_surroundings(config_for(tmp_path, transport__kv="mooncake"))
    check_surroundings(config_for(tmp_path / "pairs", engine__sglang__kv=SGLangKV.pd, cluster__cells=2))


@pytest.mark.parametrize(
    ("values", "field", "remedy"),
    [
        ({"environment": "", "launcher": __file__}, "engine", "gyre engine install sglang --device cpu"),
        ({"environment": "", "launcher": __file__, "flags": {"port": 1}}, "engine.sglang.flags.port", "leave --port out"),
        ({"environment": "/nosuch"}, "engine.sglang.environment", "bin/python"),
        ({"launcher": "/nosuch.py"}, "engine.sglang.launcher", "no file"),
        (
            {"kv": SGLangKV.pd, "flags": {"disaggregation-mode": "decode"}},
            "engine.sglang.flags.disaggregation-mode",
            "set engine.sglang.kv",
        ),
        ({"flags": {"port": 1}}, "engine.sglang.flags.port", "leave --port out"),
    ],
)
def test_what_is_missing_is_refused_by_name(tmp_path: Path, values: dict[str, object], field: str, remedy: str):
    with pytest.raises(UserError, match=remedy) as caught:
        check_surroundings(config_for(tmp_path, **{f"engine__sglang__{name}": value for name, value in values.items()}))
    assert caught.value.field == field


@pytest.mark.parametrize(("device", "remedy"), [(Device.cpu, "^SGLang as released"), (Device.auto, "^no NVIDIA GPU .* SGLang as released")])
def test_a_cpu_is_refused_unless_somebody_names_an_sglang_that_computes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device, remedy: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError) as caught:
        check_surroundings(config_for(tmp_path, engine__sglang__environment="", engine__sglang__device=device))
    assert (caught.value.field, caught.value.value) == ("engine.sglang.device", device.value)
    assert re.search(remedy, caught.value.remedy)
    assert "engine=embedded" in caught.value.remedy
    check_surroundings(config_for(tmp_path / "named", engine__sglang__device=device))
    monkeypatch.setattr("gyre_hpc.launch.server_surroundings.find", lambda config, cache, device: Path("python"))
    check_surroundings(config_for(tmp_path / "started", engine__sglang__environment="", engine__sglang__launcher=__file__))


@pytest.mark.parametrize(
    ("visible", "cells", "field"),
    [("", 1, "engine.sglang.device"), ("0", 2, "cluster.cells"), ("0,1,2", 2, "cluster.cells"), ("0,1,2,3", 2, ""), ("0,0,0,0", 2, "")],
)
def test_every_cell_has_gpus_of_its_own_unless_one_is_named_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, cells: int, field: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    config = config_for(tmp_path, engine__sglang__device=Device.cuda, cluster__cells=cells, cluster__ranks_per_cell=2)
    if field:
        with pytest.raises(UserError, match=r"GPU") as caught:
            check_surroundings(config)
        assert caught.value.field == field
    else:
        check_surroundings(config)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("echo", "there is no sglang in it; install sglang==.* gyre engine install"),
        ("echo broken >&2; exit 3", r"does not work \(broken\)"),
    ],
)
def test_an_environment_of_ones_own_without_sglang_is_refused(tmp_path: Path, said: str, remedy: str):
    config = config_for(tmp_path)
    environment(tmp_path, said)
    with pytest.raises(UserError, match=remedy) as caught:
        check_surroundings(config)
    assert caught.value.field == "engine.sglang.environment"


def test_an_sglang_of_another_version_is_taken_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = config_for(tmp_path)
    check_surroundings(config)
    assert not capsys.readouterr().err
    environment(tmp_path, "echo 0.4.1")
    check_surroundings(config)
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds sglang 0.4.1" in line and VERSION in line


def test_the_interpreter_itself_says_which_sglang_the_server_would_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    python, packages = tmp_path / "bin" / "python", tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (tmp_path / "elsewhere" / "sglang").mkdir(parents=True)
    # A server does not see these two.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert version_in(python) == ""
    (packages / "sglang.py").touch()
    assert version_in(python) == "unknown"
    (packages / "sglang-0.1.dist-info").mkdir()
    (packages / "sglang-0.1.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.1\n")
    assert version_in(python) == "0.1"


def test_the_deterministic_mode_is_refused_where_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="GPUs alone"):
        check_surroundings(config_for(tmp_path, engine__sglang__device=Device.auto, engine__deterministic=True))


def test_a_scratch_folder_whose_path_is_too_long_for_the_servers_sockets_is_refused(tmp_path: Path):
    scratch = tmp_path / ("x" * 30)
    with pytest.raises(UserError, match="sockets of SGLang") as caught:
        check_surroundings(config_for(tmp_path, paths__scratch=str(scratch)))
    assert caught.value.field == "paths.scratch"
