"""A node looks at itself, and nodes meet in a folder: real files, real connections, real processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gyre_hpc.cli.commands import run
from gyre_hpc.config.compose import compose_config
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight import gather
from gyre_hpc.launch.preflight.facts import Gpu, NodeProbe
from gyre_hpc.launch.preflight.judge import judge
from gyre_hpc.launch.preflight.meeting import Opening, connect, take_part
from gyre_hpc.launch.preflight.probe import gpus_here, interconnects, leftovers, look
from gyre_hpc.launch.preflight.srun import srun_command
from gyre_hpc.observability.process_tree import identify
from gyre_hpc.ports import listen


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return compose_config([f"paths.cache={tmp_path / 'cache'}", "sandbox=none"])


def fake_smi(folder: Path, body: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_gpus_of_a_node_are_those_that_the_job_may_use(tmp_path: Path):
    rows = "echo '0, GPU-aa, NVIDIA H200, 143771, 4\n1, GPU-bb, NVIDIA H200, 143771, 9'"
    environ = fake_smi(tmp_path, rows)
    one = (Gpu(name="NVIDIA H200", memory_mb=143771, used_mb=9),)
    assert gpus_here({**environ, "CUDA_VISIBLE_DEVICES": "1"}) == (one, "") == gpus_here({**environ, "CUDA_VISIBLE_DEVICES": "GPU-bb"})
    assert len(gpus_here({**environ, "CUDA_VISIBLE_DEVICES": "0,1"})[0]) == 2
    assert gpus_here({"PATH": str(tmp_path / "nowhere")}) == ((), "")


@pytest.mark.parametrize(
    ("body", "said"), [("echo no driver >&2; exit 9", "no driver"), ("echo a, b", "cannot be read"), ("exit 3", "exit code 3")]
)
def test_an_nvidia_smi_that_fails_is_told(tmp_path: Path, body: str, said: str):
    gpus, error = gpus_here({**fake_smi(tmp_path, body), "CUDA_VISIBLE_DEVICES": "0"})
    assert gpus == () and said in error


def test_a_process_whose_parent_is_gone_is_left_over():
    gone = subprocess.Popen(["true"])
    gone.wait()
    environ = {**os.environ, "GYRE_PARENT_PID": str(gone.pid)}
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1, env=environ) as orphan:
        assert orphan.stdout is not None and orphan.stdout.readline() and identify(gone.pid) is None
        found = {left.pid: left.command for left in leftovers()}
        assert "input()" in found[orphan.pid] and os.getpid() not in found
        orphan.kill()
    living = {**os.environ, "GYRE_PARENT_PID": str(os.getpid())}
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1, env=living) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert child.pid not in {left.pid for left in leftovers()}
        child.kill()


def test_rdma_devices_are_named(tmp_path: Path):
    (tmp_path / "mlx5_1").mkdir()
    (tmp_path / "mlx5_0").mkdir()
    assert interconnects(tmp_path) == ("mlx5_0", "mlx5_1") and interconnects(tmp_path / "none") == ()


def test_a_folder_that_takes_no_files_is_told(config: Config, tmp_path: Path):
    assert "o such file" in look(config, 0, tmp_path / "gone").run.error
    config.paths.scratch = str(tmp_path / "file" / "below")
    (tmp_path / "file").touch()
    probe = look(config, 0, tmp_path)
    assert probe.run.error == "" and probe.run.free_bytes > 0 and "file" in probe.scratch.error


def test_three_nodes_meet_and_reach_each_other_through_the_first(config: Config, tmp_path: Path):
    found: dict[int, dict[int, NodeProbe]] = {}

    def part(node: int) -> None:
        found[node] = take_part(config, tmp_path, node, 3, within_s=30.0)

    threads = [threading.Thread(target=part, args=(node,)) for node in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found[0]) == [0, 1, 2] and sorted(found[2]) == [2]
    assert [[way.to for way in found[0][node].connections] for node in range(3)] == [[0, 1, 2], [0], [0]]
    ways = [way for probe in found[0].values() for way in probe.connections]
    assert [way.error for way in ways] == [""] * 5 and all(abs(way.ahead_s) < way.seconds for way in ways), "it is one clock"
    assert judge(found[0], ["a", "b", "c"], config).refusals == ()


def test_who_does_not_come_is_waited_for_no_longer_than_said(config: Config, tmp_path: Path):
    assert sorted(take_part(config, tmp_path, 0, 2, within_s=0.5)) == [0]
    (tmp_path / "empty").mkdir()
    assert sorted(take_part(config, tmp_path / "empty", 1, 2, within_s=0.3)) == [1]


def test_a_node_that_cannot_listen_is_told_by_the_others(config: Config, tmp_path: Path):
    config.network.interface = "nosuchcard0"
    probe = take_part(config, tmp_path, 0, 1, within_s=5.0)[0]
    assert "nosuchcard0" not in probe.address and "cannot listen" in probe.connections[0].error
    with pytest.raises(UserError, match="network.interface='nosuchcard0'"):
        judge({0: probe}, ["a"], config).enforce()


def test_somebody_else_at_the_address_is_not_taken_for_the_node():
    there = Opening(node=3, host="n4", address="127.0.0.1", port=0, word="ours")
    with listen("127.0.0.1") as other:

        def answer() -> None:
            sock, _ = other.accept()
            with sock:
                sock.recv(100)
                sock.sendall(b'{"word": "theirs", "unix_s": 1}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        way = connect(Opening(node=3, host="n4", address="127.0.0.1", port=other.getsockname()[1], word="ours"))
        thread.join(10)
    assert way.error == "somebody else answers there"
    assert connect(Opening(node=there.node, host="n4", address="127.0.0.1", port=way_closed(), word="ours")).error != ""


def way_closed() -> int:
    with listen("127.0.0.1") as sock:
        return int(sock.getsockname()[1])


def test_the_first_node_of_a_job_judges_and_leaves_nothing_behind(config: Config, tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    store_config(config, folder.config)
    verdict = gather.preflight(config, folder, ["here"], 0, "17-0")
    assert verdict is not None and verdict.refusals == () and [path.name for path in folder.preflight.iterdir()] == ["17-0.json"]
    assert gather.find_verdict(folder.preflight / "17-0.json") == verdict
    assert gather.find_verdict(folder.preflight / "18-0.json", within_s=0.1) is None
    with pytest.raises(UserError, match="is not to be seen on"):
        gather.preflight(config, RunFolder(tmp_path / "elsewhere"), ["here"], 0, "17-0")
    assert not (tmp_path / "elsewhere").exists()


def test_gyre_preflight_shows_this_machine_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    place = [f"paths.cache={tmp_path / 'cache'}", "sandbox=none"]
    assert run(["preflight", *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("node") and lines[-1] == "a run can start there" and [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert run(["preflight", "--json", *place]) == 0 and '"troubles":[' in capsys.readouterr().out
    assert run(["preflight", "network.interface=nosuchcard0", *place]) == 2
    assert "refused: " in capsys.readouterr().out
    assert run(["preflight", "one", "two"]) == 2 and run(["preflight", str(tmp_path)]) == 2


def test_the_job_that_asks_nodes_is_told_what_chooses_nodes(config: Config):
    slurm = config.cluster.slurm
    slurm.nodes, slurm.gpus_per_node, slurm.partition, slurm.qos = 3, 2, "long", "high"
    slurm.options = {"exclude": "n7", "mail-user": "me@site"}
    slurm.srun_options = ["--mpi=none"]
    argv = srun_command(config, ["python", "-m", "x"])
    assert {"--nodes=3", "--gpus-per-node=2", "--partition=long", "--qos=high", "--exclude=n7", "--mpi=none"} < set(argv)
    assert not any("mail" in word for word in argv) and argv[argv.index("--") :] == ["--", "python", "-m", "x"]
    slurm.setup = ["module load cuda"]
    assert srun_command(config, ["python", "-m", "x"])[-2:] == ["-c", "module load cuda\nexec python -m x"]


def test_a_machine_without_srun_says_so(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="srun cannot be started here"):
        gather.ask_on_slurm(config, tmp_path)
    assert not list(tmp_path.glob(".preflight*"))


def test_every_node_of_a_job_hears_the_verdict(config: Config, tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    config.network.interface = "nosuchcard0"
    store_config(config, folder.config)
    heard: dict[int, str] = {}

    def part(node: int) -> None:
        verdict = gather.preflight(config, folder, ["a", "b"], node, "5-1", within_s=30.0)
        assert verdict is not None
        heard[node] = str(verdict.refusals[0])

    threads = [threading.Thread(target=part, args=(node,)) for node in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(heard) == [0, 1] and heard[0] == heard[1] and "nosuchcard0" in heard[0]
