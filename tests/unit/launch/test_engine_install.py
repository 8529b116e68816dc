"""Making SGLang's environment on request: whole or not at all, whatever happens. Python, venv and pip are played by a script."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.engine_schema import Device, SGLangConfig
from gyre_hpc.engines.sglang import environment
from gyre_hpc.errors import UserError
from gyre_hpc.launch.engine_install import install, installations
from tests.fakes.live_run import wait_for

PYTHON_311 = r"""#!/bin/sh
# The interpreter below, and the one inside an environment: a copy of this file in bin/ of it.
here=$(dirname "$(dirname "$0")")
case "$*" in
  *ensurepip*) exit 0 ;;
  "-m venv --prompt sglang "*)
    echo venv >>CALLS
    mkdir -p "$5/bin" "$5/lib"; cp "$0" "$5/bin/python"
    printf '#!%s/bin/python\n' "$5" >"$5/bin/tool"; echo "command = $5" >"$5/pyvenv.cfg" ;;
  *" pip "*" install "*)
    echo "pip $*" >>CALLS
    echo "TMPDIR=$TMPDIR PYTHONPATH=$PYTHONPATH" >>CALLS
    PIP ;;
  *" freeze "*) cat "$here/frozen" ;;
  *compileall*) exit 1 ;;
  *) exit 9 ;;
esac
"""
GOOD = """
for word; do :; done
case "$word" in *pins.txt) grep -v '^#' "$word" | sed 's/outlines_core/Outlines-Core/' >"$here/frozen" ;; esac
"""
"""The last argument is the file of pins; what freeze then says is spelt another way, as pip's versions do."""

Put = Callable[[str], Path]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a Python 3.11 in $PYTHON whose pip does as told; returns the file of its calls."""
    program, calls = tmp_path / "a python3.11", tmp_path / "calls"

    def put(pip: str) -> Path:
        program.write_text(PYTHON_311.replace("CALLS", str(calls)).replace("PIP ;;", f"{pip} ;;"))
        program.chmod(0o755)
        return calls

    monkeypatch.setenv("PYTHON", str(program))
    monkeypatch.delenv("PIP_ARGS", raising=False)
    return put


def quiet(line: str) -> None:
    pass


def folder_in(cache: Path, device: Device = Device.cpu) -> Path:
    return environment.folder_of(cache, device)


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "engines" / "sglang").iterdir() if not path.name.endswith(".lock"))


def found(cache: Path, device: Device = Device.cpu) -> Path:
    return environment.find(SGLangConfig(), cache, device)


def test_an_environment_is_made_once_and_found(tmp_path: Path, fake: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, said = fake(GOOD), list[str]()
    monkeypatch.setenv("PIP_ARGS", "--find-links 'a folder'")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with pytest.raises(UserError) as caught:
        found(tmp_path)
    assert f"gyre engine install sglang --device cpu --cache {tmp_path}" in str(caught.value)
    assert install(Device.cpu, tmp_path, said.append) == install(Device.cpu, tmp_path, said.append) == folder_in(tmp_path)
    assert found(tmp_path) == folder_in(tmp_path) / "bin" / "python"
    assert left(tmp_path) == [f"{environment.VERSION}-cpu"]
    made, torch, where, rest, _ = calls.read_text().splitlines()
    assert made == "venv" and torch.endswith("--find-links a folder torch==2.13.0+cpu") and "--no-deps" in torch
    assert "--no-deps" in rest and rest.split()[-2] == "-r" and ".installing-" in where and where.endswith("PYTHONPATH=")
    assert any("fetching torch" in line for line in said) and "is installed" in said[-2] and "engine.sglang.launcher=" in said[-1]


def test_nothing_in_an_environment_names_the_folder_it_was_made_in(tmp_path: Path, fake: Put) -> None:
    fake(GOOD)
    (tmp_path / "link").symlink_to(tmp_path)
    assert install(Device.cpu, tmp_path / "link", quiet).exists()
    folder = folder_in(tmp_path)
    assert (folder / "bin" / "tool").read_text() == f"#!{folder}/bin/python\n"
    assert (folder / "pyvenv.cfg").read_text() == f"command = {folder}\n"
    assert not (folder / "tmp").exists()


def test_cuda_takes_what_sglang_declares(tmp_path: Path, fake: Put) -> None:
    calls = fake(GOOD)
    install(Device.cuda, tmp_path, quiet)
    (pip,) = [line for line in calls.read_text().splitlines() if line.startswith("pip")]
    assert "--no-deps" not in pip and environment.pinned(Device.cuda)[-1] == f"sglang=={environment.VERSION}"
    assert found(tmp_path, Device.cuda) == environment.python_of(folder_in(tmp_path, Device.cuda))
    with pytest.raises(UserError):
        found(tmp_path, Device.cpu)


def test_changed_pins_are_another_environment_and_the_old_one_stays_until_the_new_one_stands(tmp_path: Path, fake: Put) -> None:
    fake(GOOD)
    folder = install(Device.cpu, tmp_path, quiet)
    (folder / environment.STAMP).write_text("sglang==0.1\n")
    (folder / "old").touch()
    with pytest.raises(UserError, match="another gyre_hpc"):
        found(tmp_path)
    assert installations(tmp_path)[0].state == "outdated"
    fake("exit 1")
    with pytest.raises(UserError):
        install(Device.cpu, tmp_path, quiet)
    assert (folder / "old").exists()
    fake(GOOD)
    install(Device.cpu, tmp_path, quiet)
    assert not (folder / "old").exists() and found(tmp_path) and left(tmp_path) == [folder.name]


def test_two_installs_at_once_make_one(tmp_path: Path, fake: Put) -> None:
    calls = fake(f"while [ ! -e '{tmp_path}/go' ]; do :; done; {GOOD}")
    said: list[list[str]] = [[], []]

    def waits_for_the_other(index: int, line: str) -> None:
        said[index].append(line)
        if "another install" in line:
            (tmp_path / "go").touch()

    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(install, Device.cpu, tmp_path, lambda line, i=i: waits_for_the_other(i, line)) for i in (0, 1)]
        assert [future.result() for future in made] == [folder_in(tmp_path)] * 2
    assert calls.read_text().splitlines().count("venv") == 1
    assert left(tmp_path) == [f"{environment.VERSION}-cpu"]


@pytest.mark.parametrize(
    ("pip", "remedy"),
    [
        ("echo 'ERROR: No matching distribution found for torch==2.13.0+cpu' >&2; exit 1", "PIP_EXTRA_INDEX_URL"),
        ("echo 'ERROR: No matching distribution found for zzz==1' >&2; exit 1", "registry does not have it"),
        ("echo 'WARNING: Retrying: NewConnectionError: Failed to establish a new connection' >&2; exit 1", "not reachable"),
        ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "make room"),
        ("echo 'ERROR: something else' >&2; exit 2", "pip failed with exit code 2: ERROR: something else"),
        (f'{GOOD} [ ! -e "$here/frozen" ] || sed -i 1d "$here/frozen"', "did not install accelerate==1.15.0"),
    ],
)
def test_a_failed_install_says_why_and_leaves_nothing(tmp_path: Path, fake: Put, pip: str, remedy: str) -> None:
    fake(f'mkdir -p "$here/half"; {pip}')
    said: list[str] = []
    with pytest.raises(UserError) as caught:
        install(Device.cpu, tmp_path, said.append)
    assert remedy in str(caught.value) and len(str(caught.value).splitlines()) == 1
    assert left(tmp_path) == []
    if "echo" in pip:
        assert pip.split("'")[1] in said[-1]


def test_too_little_room_is_said_before_anything_is_fetched(
    tmp_path: Path, fake: Put, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = fake(GOOD)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=500_000_000))
    assert run(["engine", "install", "sglang", "--device", "cpu", "--cache", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--cache=" in line and "3300 MB are needed, 500 MB are free" in line and not calls.exists() and left(tmp_path) == []


@pytest.mark.parametrize(("sig", "leaves"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_an_interrupted_install_looks_like_none_and_the_next_one_starts_afresh(
    tmp_path: Path, fake: Put, sig: signal.Signals, leaves: bool
) -> None:
    fake(f"echo $$ >'{tmp_path}/pid.new'; mv '{tmp_path}/pid.new' '{tmp_path}/pid'; exec sleep 600")
    cache = tmp_path / "cache"
    # Whoever started the tests in the background may ignore Ctrl-C; what is started from a terminal does not.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gyre_hpc.cli import main; main()"
    command = [sys.executable, "-c", start, "engine", "install", "sglang", "--device", "cpu", "--cache", str(cache)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        wait_for((tmp_path / "pid").exists, "start of pip")
        process.send_signal(sig)
        assert process.wait(30) == (-sig if leaves else 130)
    fetching = int((tmp_path / "pid").read_text())
    if leaves:
        # Nobody was left to end it, and what it still writes may not be swept under it.
        with pytest.raises(BlockingIOError), open(folder_in(cache).parent / f".{folder_in(cache).name}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(fetching, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{fetching}") or " Z " in Path(f"/proc/{fetching}/stat").read_text(), "end of pip")
    assert bool(left(cache)) == leaves
    with pytest.raises(UserError):
        found(cache)
    fake(GOOD)
    install(Device.cpu, cache, quiet)
    assert left(cache) == [f"{environment.VERSION}-cpu"]


def test_no_python_of_the_right_version_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(UserError, match="pins .* are for Python 3.11.*apt install python3.11-venv"):
        install(Device.cpu, tmp_path, quiet)
    assert left(tmp_path) == []


def test_a_stamp_without_a_python_is_no_environment(tmp_path: Path, fake: Put) -> None:
    fake(GOOD)
    folder = install(Device.cpu, tmp_path, quiet)
    environment.python_of(folder).unlink()
    assert not environment.is_complete(folder, Device.cpu)


def test_an_environment_of_ones_own_is_taken_as_it_is(tmp_path: Path, fake: Put) -> None:
    with pytest.raises(UserError, match="holds no bin/python") as caught:
        environment.find(SGLangConfig(environment=str(tmp_path / "own")), tmp_path, Device.auto)
    assert caught.value.field == "engine.sglang.environment"
    python = tmp_path / "own" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    assert environment.find(SGLangConfig(environment=str(tmp_path / "own")), tmp_path, Device.auto) == python


def test_auto_is_cuda_where_a_gpu_is_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not environment.sees_gpu(tmp_path)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    assert not environment.sees_gpu(tmp_path)  # the driver's program without a GPU
    program.write_text("#!/bin/sh\necho 'GPU 0: x'\n")
    assert environment.sees_gpu(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment.choose_device(Device.auto) is Device.cuda
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert environment.choose_device(Device.auto) is Device.cpu
    assert environment.choose_device(Device.cuda) is Device.cuda
    program.unlink()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    assert not environment.sees_gpu(tmp_path)
    (tmp_path / "dev" / "nvidia0").touch()
    assert environment.sees_gpu(tmp_path)


def test_list_and_install_on_the_command_line(tmp_path: Path, fake: Put, capsys: pytest.CaptureFixture[str]) -> None:
    fake(GOOD)
    assert run(["engine", "install", "sglang", "--device", "cpu", "--cache", str(tmp_path)]) == 0
    assert run(["engine", "install", "embedded", "--cache", str(tmp_path)]) == 0
    assert "nothing to install" in capsys.readouterr().out
    (tmp_path / "engines" / "sglang" / "0.5.1-cpu").mkdir()
    assert run(["engine", "list", "--cache", str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["NAME", "VERSION", "DEVICE", "INSTALLED", "SIZE", "FOLDER"]
    assert ["embedded", "comes", "along"] in lines
    states = {tuple(line[1:3]): line[3] for line in lines if line[:1] == ["sglang"]}
    assert states == {(environment.VERSION, "cpu"): "yes", (environment.VERSION, "cuda"): "no", ("0.5.1", "cpu"): "unused"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], ["NAME='nosuch'", "sglang"]),
        (["sglang", "--device", "tpu"], ["--device='tpu'", "cpu", "cuda"]),
        (["sglang", "--cache", "/proc/nosuch"], ["--cache=", "/proc/nosuch"]),
    ],
)
def test_a_wrong_name_device_or_place_is_one_line(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["engine", "install", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(word in line for word in words)


def test_the_command_loads_no_torch() -> None:
    program = (
        "import sys\nfrom gyre_hpc.cli.commands import run\nimport gyre_hpc.launch.engine_install\n"
        "try:\n    run(['engine', 'install', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'transformers', 'sglang') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("[]") and "--device" in done.stdout
