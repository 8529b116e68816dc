"""`launch.py -m`: every combination is a run of its own in one sweep folder; one that fails stops no other and is named at the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.resume import resumed
from gyre_hpc.config.sweep import refuse_launchers
from gyre_hpc.errors import UserError

PROGRAM = """
import sys
from gyre_hpc.config.door import hydra_main
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import store_config

@hydra_main
def launch(config):
    store_config(config, RunFolder(config.paths.run).config)
    if config.seed == 66:
        raise RuntimeError("a bug")
    return {7: 7, 8: 130}.get(config.seed, 0)

launch()
"""


def sweep(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (cwd / "program.py").write_text(PROGRAM)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "program.py", "-m", "hydra.sweep.dir=swept", *arguments],
        cwd=cwd, check=False, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL, env=environ,
    )  # fmt: skip


def runs(cwd: Path) -> list[str]:
    return sorted(path.parent.name for path in cwd.glob("swept/*/config.yaml"))


def test_runs_are_named_by_what_they_alone_were_told(tmp_path: Path):
    done = sweep(tmp_path, "+experiment=rehearsal", "scheduler=elastic,async", "algo.group_size=2,4", "algo.updates=3")
    assert done.returncode == 0, done.stderr
    assert runs(tmp_path) == [
        "0_scheduler-elastic_algo.group_size-2",
        "1_scheduler-elastic_algo.group_size-4",
        "2_scheduler-async_algo.group_size-2",
        "3_scheduler-async_algo.group_size-4",
    ]
    assert done.stdout.splitlines()[-1] == f"sweep of 4 runs, none failed; side by side: gyre compare {tmp_path / 'swept'}"
    folder = tmp_path / "swept" / "3_scheduler-async_algo.group_size-4"
    config = resumed(str(folder), ())
    assert (config.experiment, config.algo.group_size, config.algo.updates, config.paths.run) == ("rehearsal", 4, 3, str(folder))


def test_runs_that_are_only_submitted_are_not_said_to_have_ended_well(tmp_path: Path):
    done = sweep(tmp_path, "+experiment=rehearsal", "cluster=slurm", "seed=1,2")
    assert done.stdout.splitlines()[-1].startswith("sweep of 2 runs, each submitted; side by side: "), done.stderr
    waited = sweep(tmp_path, "+experiment=rehearsal", "cluster=slurm", "launch.wait=true", "seed=1,2")
    assert waited.stdout.splitlines()[-1].startswith("sweep of 2 runs, none failed; side by side: "), waited.stderr


def test_a_run_that_fails_stops_no_other_and_is_named(tmp_path: Path):
    done = sweep(tmp_path, "seed=1,7,-1,2")
    assert done.returncode == 7 and runs(tmp_path) == ["0_seed-1", "1_seed-7", "3_seed-2"]
    assert "sweep of 4 runs, 2 failed: 1_seed-7 (exit code 7), 2_seed--1 (exit code 2); side by side" in done.stderr


def test_a_bug_in_one_run_stops_no_other_and_shows_its_traceback(tmp_path: Path):
    done = sweep(tmp_path, "seed=66,1")
    assert done.returncode == 1 and runs(tmp_path) == ["0_seed-66", "1_seed-1"]
    assert "1 failed: 0_seed-66 (exit code 1)" in done.stderr and "RuntimeError: a bug" in done.stderr


def test_a_stop_is_meant_for_the_whole_sweep(tmp_path: Path):
    done = sweep(tmp_path, "seed=1,8,2,3")
    assert done.returncode == 130 and runs(tmp_path) == ["0_seed-1", "1_seed-8"]
    assert "3 failed: 1_seed-8 (exit code 130), 2_seed-2 (not begun), 3_seed-3 (not begun)" in done.stderr


def test_a_name_holds_nothing_that_a_shell_or_hydra_takes_for_its_own(tmp_path: Path):
    done = sweep(tmp_path, "paths.cache=/tmp/a b,'x=y,z'", "seed=1")
    assert done.returncode == 0, done.stderr
    assert runs(tmp_path) == ["0_paths.cache--tmp-a-b", "1_paths.cache--x-y-z-"]


def test_one_folder_for_all_runs_is_refused_and_one_for_each_is_taken(tmp_path: Path):
    done = sweep(tmp_path, "seed=1,2", f"paths.run={tmp_path / 'one'}")
    assert done.returncode == 2 and "a sweep names its run folders itself" in done.stderr and not (tmp_path / "one").exists()
    done = sweep(tmp_path, f"paths.run={tmp_path / 'a'},{tmp_path / 'b'}")
    assert done.returncode == 0 and (tmp_path / "a" / "config.yaml").exists() and (tmp_path / "b" / "config.yaml").exists()


@pytest.mark.parametrize("word", ["hydra/launcher=submitit_slurm", "+hydra/launcher=joblib"])
def test_launchers_that_submit_by_themselves_are_refused_whether_installed_or_not(word: str):
    with pytest.raises(UserError, match="hydra/launcher=.*launch.py itself submits a job for each run"):
        refuse_launchers(["-m", word, "seed=1,2"])
    refuse_launchers(["-m", "hydra/launcher=basic", "seed=1,2"])


def test_a_launcher_that_a_file_of_the_users_chose_is_refused_too(tmp_path: Path):
    plugin = tmp_path / "hydra_plugins" / "mine.py"
    plugin.parent.mkdir()
    plugin.write_text("from hydra._internal.core_plugins.basic_launcher import BasicLauncher\n\nclass Mine(BasicLauncher):\n    pass\n")
    launcher = tmp_path / "conf" / "hydra" / "launcher" / "mine.yaml"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("_target_: hydra_plugins.mine.Mine\n")
    chosen = tmp_path / "conf" / "experiment" / "mine.yaml"
    chosen.parent.mkdir()
    chosen.write_text("# @package _global_\ndefaults:\n  - override /hydra/launcher: mine\n")
    done = sweep(tmp_path, "+experiment=mine", "seed=1,2")
    assert done.returncode == 2 and "hydra/launcher='hydra_plugins.mine.Mine'" in done.stderr and runs(tmp_path) == []
