"""What an sbatch script of ours says, and where a login node is recognised; SLURM's commands are scripts of the test."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.schema import Chain, ClusterConfig, ClusterKind, Config, EnvironmentKind
from gyre_hpc.config.validate_slurm import slurm as breaches
from gyre_hpc.launch.slurm.queue import is_login_node
from gyre_hpc.launch.slurm.sbatch import request_of, script


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH beside the system's; has srun, which submitit looks for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    program(folder, "srun", "exit 0")
    return folder


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def on_slurm() -> Config:
    return Config(cluster=ClusterConfig(kind=ClusterKind.slurm))


def lines_of(config: Config, folder: Path, code: Path | None = None, dependency: str = "") -> list[str]:
    return script(request_of(config, code, dependency), folder).splitlines()


def test_a_job_asks_to_be_told_to_stay_and_to_be_put_back(programs: Path, tmp_path: Path):
    lines = lines_of(on_slurm(), tmp_path)
    for line in ("--nodes=1", "--ntasks-per-node=1", "--time=60", "--signal=USR2@120", "--no-kill", "--requeue", "--open-mode=append"):
        assert f"#SBATCH {line}" in lines, lines
    assert "#SBATCH --job-name=gyre-quickstart-0" in lines or any(line.startswith("#SBATCH --job-name=gyre-") for line in lines)
    (started,) = [line for line in lines if line.startswith("srun")]
    for option in ("--no-kill", "--kill-on-bad-exit=0", "--wait=0"):
        assert option in started


def test_what_is_not_asked_for_is_left_to_the_site(programs: Path, tmp_path: Path):
    text = "\n".join(lines_of(on_slurm(), tmp_path))
    for name in ("gpus", "mem", "partition", "account", "qos", "constraint", "wckey", "cpus-per-task", "dependency"):
        assert f"--{name}" not in text


def test_everything_asked_for_is_in_the_script(programs: Path, tmp_path: Path):
    config = on_slurm()
    slurm = config.cluster.slurm
    slurm.nodes, slurm.gpus_per_node, slurm.cpus_per_node, slurm.memory_gb = 4, 8, 96, 512
    slurm.partition, slurm.account, slurm.qos, slurm.constraint, slurm.job_name = "gpu", "me", "long", "h100", "mine"
    slurm.options = {"mail-user": "me@site", "exclusive": ""}
    slurm.srun_options, slurm.setup = ["--mpi=none"], ["module load cuda"]
    lines = lines_of(config, tmp_path, Path("/run/co de"), "afterany:7")
    for line in (
        "--nodes=4", "--gpus-per-node=8", "--cpus-per-task=96", "--mem=512G", "--partition=gpu", "--account=me", "--qos=long",
        "--constraint=h100", "--job-name=mine", "--mail-user=me@site", "--exclusive", "--dependency=afterany:7",
    ):  # fmt: skip
        assert f"#SBATCH {line}" in lines, lines
    (started,) = [line for line in lines if line.startswith("srun")]
    assert "--mpi=none" in started and "--cpus-per-task=96" in started, "steps do not inherit it (SLURM 22.05 and later)"
    setup, path = lines.index("module load cuda"), lines.index("export PYTHONPATH='/run/co de'${PYTHONPATH:+:$PYTHONPATH}")
    assert setup < path < lines.index(started)


def test_a_job_submitted_from_a_checkout_runs_from_the_runs_own_copy(programs: Path, tmp_path: Path):
    for place in ("checkout", "code"):
        (tmp_path / place / "gyre_hpc").mkdir(parents=True)
        (tmp_path / place / "gyre_hpc" / "__main__.py").write_text(f"print({place!r})")
    exports = [line for line in lines_of(on_slurm(), tmp_path, tmp_path / "code") if line.startswith("export PYTHON")]
    shell = "\n".join([*exports, f"{shlex.quote(sys.executable)} -m gyre_hpc"])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = subprocess.run(["bash", "-c", shell], cwd=tmp_path / "checkout", env=environ, capture_output=True, text=True, check=True)
    assert said.stdout == "code\n"


@pytest.mark.parametrize("chain", [Chain.successor, Chain.none])
def test_slurm_puts_nothing_back_where_we_do_not_want_it(programs: Path, tmp_path: Path, chain: Chain):
    config = on_slurm()
    config.launch.chain = chain
    assert "#SBATCH --no-requeue" in lines_of(config, tmp_path)


def test_a_container_is_an_option_of_the_step(programs: Path, tmp_path: Path):
    config = on_slurm()
    config.launch.environment, config.cluster.slurm.container = EnvironmentKind.container, "site/gyre.sqsh"
    (started,) = [line for line in lines_of(config, tmp_path) if line.startswith("srun")]
    assert "--container-image=site/gyre.sqsh" in started


@pytest.mark.parametrize(
    ("answer", "environ", "is_one"),
    [
        ("echo 'Slurmctld(primary) at c1 is UP'", {"SLURM_CONF": "/x"}, True),
        ("echo 'Slurmctld(primary) at c1 is DOWN'", {"SLURM_CONF": "/x"}, False),
        ("echo 'Slurmctld(primary) at c1 is UP'", {"SLURM_CONF": "/x", "SLURM_JOB_ID": "7"}, False),
        ("sleep 60", {"SLURM_CONF": "/x"}, False),
    ],
)
def test_a_login_node_is_where_a_cluster_answers_outside_of_its_jobs(programs: Path, answer: str, environ: dict[str, str], is_one: bool):
    program(programs, "sbatch", "exit 0")
    program(programs, "scontrol", answer)
    assert is_login_node(environ) is is_one


def test_without_sbatch_there_is_no_login_node(programs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(programs))
    assert not is_login_node({"SLURM_CONF": "/x"})


def test_what_cannot_work_on_slurm_is_named():
    config = on_slurm()
    config.network.interface = "hostname"
    assert not list(breaches(config))
    slurm = config.cluster.slurm
    slurm.nodes, config.network.interface, slurm.signal_s = 2, "127.0.0.1", 3600
    config.launch.environment, config.launch.chain, slurm.options = EnvironmentKind.container, Chain.successor, {"dependency": "after:1"}
    assert [field for field, _, _ in breaches(config)] == [
        "network.interface", "cluster.slurm.container", "cluster.slurm.signal_s", "cluster.slurm.options",
    ]  # fmt: skip
    config.cluster.kind = ClusterKind.local
    assert not list(breaches(config))
