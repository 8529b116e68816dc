"""The house rules catch what they forbid, and the packaging says the same thing everywhere."""

import configparser
import re
from pathlib import Path

import pytest

from tests.house import rules

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f():\n    await asyncio.sleep(1)\n",
        "import asyncio as a\nasync def f():\n    async with a.timeout(1): ...\n",
        "from asyncio import wait_for\n",
        "from time import sleep as nap\n",
        "import time\ntime.sleep(1)\n",
        "import threading\nthreading.Timer(1, print)\n",
        "def f(loop):\n    loop.call_later(1, print)\n",
    ],
)
def test_waiting_by_oneself_is_found(source: str):
    assert list(rules.waits_in(source))


@pytest.mark.parametrize("source", ["import time\ntime.monotonic()\n", "class A:\n    def sleep(self): ...\nA().sleep()\n", "sleep = 3\n"])
def test_what_does_not_wait_is_let_through(source: str):
    assert not list(rules.waits_in(source))


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_names_without_a_job_and_files_too_long_are_found(tmp_path: Path):
    tree(
        tmp_path,
        {
            "gyre_hpc/utils/a.py": "",
            "gyre_hpc/cell/helpers.py": "",
            "tests/long.py": "#\n" * 301,
            "launch.py": "#\n" * 16,
            "launchers/start": "#\n" * 21,
            "gyre_hpc/fine.py": "#\n" * 300,
        },
    )
    assert {line.split(":")[0] for line in rules.names(tmp_path)} == {"gyre_hpc/utils/a.py", "gyre_hpc/cell/helpers.py"}
    assert {line.split(":")[0] for line in rules.lengths(tmp_path)} == {"tests/long.py", "launch.py", "launchers/start"}


def test_a_package_that_the_wheel_would_lack_is_found(tmp_path: Path):
    tree(
        tmp_path,
        {
            "gyre_hpc/__init__.py": "",
            "gyre_hpc/new/a.py": "",
            "setup.cfg": "[options]\npackages =\n  gyre_hpc\n  gyre_hpc.old\n  gyre_hpc.conf\n",
        },
    )
    assert [re.search(r"gyre_hpc\.\w+", line)[0] for line in rules.packages(tmp_path)] == ["gyre_hpc.new", "gyre_hpc.old"]
    rules.list_packages(tmp_path)
    assert list(rules.packages(tmp_path)) == []


def test_only_the_timers_file_waits(tmp_path: Path):
    waiting = "import time\ntime.sleep(1)\n"
    tree(tmp_path, {"gyre_hpc/shell/timers.py": waiting, "gyre_hpc/cell/loop.py": waiting})
    assert [line.split(":")[0] for line in rules.waits(tmp_path)] == ["gyre_hpc/cell/loop.py"]


def test_every_exception_still_exists():
    assert [place for place in rules.MAY_WAIT if not (ROOT / place).exists()] == []


def _pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\s*(?:- )?([A-Za-z0-9_.-]+)==([^\s;]+)", text, re.MULTILINE))


def _setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_the_conda_environment_has_the_pins_of_setup_cfg():
    extras = _setup()["options.extras_require"]
    wanted = _pins(_setup()["options"]["install_requires"])
    for extra in ("gpu", "slurm", "dev"):
        wanted |= _pins(extras[extra])
    assert _pins((ROOT / "env.yml").read_text()) == wanted


def test_every_requirement_is_pinned():
    parser = _setup()
    texts = [parser["options"]["install_requires"], *parser["options.extras_require"].values()]
    lines = [line for text in texts for line in text.split("\n") if line.strip() and not line.startswith("#")]
    assert [line for line in lines if "==" not in line] == []
