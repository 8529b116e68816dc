"""A run on SLURM has its own copy of the code."""

import os
import subprocess
import sys
from pathlib import Path

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.launch.slurm.snapshot import take
from gyre_hpc.launch.versions import COMMIT, commit_here


def test_the_copy_is_what_python_finds_with_its_configuration_groups(tmp_path: Path):
    code = take(RunFolder(tmp_path))
    program = "import gyre_hpc, gyre_hpc.conf, importlib.resources as r; print(gyre_hpc.__file__, r.files('gyre_hpc.conf') / 'config.yaml')"
    environ = {**os.environ, "PYTHONPATH": str(code)}
    said = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    package, conf = map(Path, said.stdout.split())
    assert package.is_relative_to(code) and conf.is_relative_to(code) and conf.exists()
    assert not list(code.rglob("*.pyc"))


def test_a_whole_copy_is_kept_and_half_a_one_made_again(tmp_path: Path):
    folder = RunFolder(tmp_path)
    marked = take(folder) / "gyre_hpc" / "errors.py"
    marked.write_text("# of the first attempt")
    assert take(folder) == folder.code and marked.read_text() == "# of the first attempt"
    (folder.code / "DONE").unlink()
    take(folder)
    assert "class UserError" in marked.read_text()


def test_a_copy_tells_the_commit_that_it_was_made_from(tmp_path: Path):
    code = take(RunFolder(tmp_path))
    assert (code / COMMIT).read_text() == commit_here()
    (code / COMMIT).write_text("0123abcd+")
    program = "import gyre_hpc.launch.versions as v; print(v.commit_here())"
    environ = {**os.environ, "PYTHONPATH": str(code)}
    said = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert said.stdout == "0123abcd+\n"
