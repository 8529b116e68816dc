"""What is installed from the wheel composes every experiment, far away from the source tree."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gyre_hpc.config.compose import experiments

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
import gyre_hpc, gyre_hpc.conf, gyre_hpc.cli
from gyre_hpc.config.compose import compose_config, experiments
names = {name: compose_config(["+experiment=" + name]).experiment for name in experiments()}
names[""] = compose_config(["scheduler=async"]).experiment
print(json.dumps({"names": names, "files": [gyre_hpc.__file__, gyre_hpc.conf.__file__], "torch": "torch" in sys.modules}))
"""


def _run(*argv: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=110, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder with the wheel's content; the wheel is built from a copy, so that the source tree stays as it is."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("gyre_hpc", "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(work), cwd=source)
    (wheel,) = work.glob("gyre_hpc-*.whl")
    site = work / "site"
    _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel), cwd=work)
    return site


def test_every_experiment_composes_from_the_wheel(installed: Path, tmp_path: Path):
    told = json.loads(_run(sys.executable, "-c", PROGRAM, cwd=tmp_path, PYTHONPATH=str(installed)))
    assert told["names"] == {name: name for name in experiments()} | {"": "quickstart"}
    assert all(Path(file).is_relative_to(installed) for file in told["files"])
    assert not told["torch"]


def test_the_wheel_holds_every_source_file(installed: Path):
    def below(root: Path) -> set[str]:
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.suffix in {".py", ".yaml", ".txt"}}

    source = installed.parent / "source"
    assert below(source / "gyre_hpc") - below(installed / "gyre_hpc") == set()
    assert below(source / "conf") - below(installed / "gyre_hpc" / "conf") == set()


def test_the_console_command_is_in_the_wheel(installed: Path, tmp_path: Path):
    assert (installed / "bin" / "gyre").exists()
    told = _run(
        sys.executable,
        "-c",
        "import sys; sys.argv = ['gyre', '--help']; import gyre_hpc.cli; gyre_hpc.cli.main()",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    assert "compare" in told
