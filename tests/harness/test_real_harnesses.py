"""Real harnesses, as their makers ship them, on a machine without any network: a whole gateway, engines that compute, tool use, a
role switch in mid-answer, a lost cell. Everything that `gyre harness check` looks at holds, else its exit code is not 0."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gyre_hpc.config.place import cache_folder
from gyre_hpc.config.schema import Config
from gyre_hpc.harnesses import create_harness
from gyre_hpc.harnesses.place import installed_folder
from gyre_hpc.launch.harness_install import is_installed
from gyre_hpc.rehearsal.dialects import dialect_of
from gyre_hpc.rehearsal.scenarios import SCENARIOS
from gyre_hpc.sandboxes import Bubblewrap
from tests.fakes.whole_run import WholeRun

Needs = Callable[[str, str], None]

REAL = ("claude_code", "codex", "qwen_code")
"""One for each protocol: Anthropic Messages, Responses, Chat Completions."""
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""In a new network namespace: SIOCSIFFLAGS sets `lo` up and running; there is no other interface."""
OFFLINE = ("unshare", "--map-root-user", "--net", sys.executable, "-c", LOOPBACK)
GYRE = (sys.executable, "-c", "from gyre_hpc.cli import main; main()")


def offline_problem() -> str:
    probe = "import socket; socket.create_server(('127.0.0.1', 0))"
    done = subprocess.run([*OFFLINE, sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()[-200:] or f"exit code {done.returncode}"


def check(name: str, engine: str, *scenarios: str, cache: Path) -> subprocess.CompletedProcess[str]:
    wanted = [word for scenario in scenarios for word in ("--scenario", scenario)]
    argv = [*OFFLINE, *GYRE, "harness", "check", name, "--engine", engine, "--cache", str(cache), *wanted]
    return subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", REAL)
def test_a_real_harness_works_through_a_role_switch_and_a_lost_cell(name: str, needs: Needs) -> None:
    cache, harness = cache_folder(Config()), create_harness(name)
    there = is_installed(installed_folder(cache, harness, harness.version))
    needs(name, "" if there else f"it is not installed; gyre harness install {name}")
    needs("bwrap", Bubblewrap().probe())
    needs("namespaces", offline_problem())
    done = check(name, "embedded", "tools", "role_switch", "cell_lost", cache=cache)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_a_whole_run_works_with_a_real_harness_as_it_is_configured(needs: Needs, tmp_path: Path) -> None:
    """The check plays with options of its own; a run takes those of conf/harness."""
    cache, harness = cache_folder(Config()), create_harness("codex")
    needs("codex", "" if is_installed(installed_folder(cache, harness, harness.version)) else "gyre harness install codex")
    small = ("algo.groups_per_batch=2", "algo.group_size=2", "algo.updates=1", "cluster.cells=2", "model.max_context=65536")
    with WholeRun(tmp_path, "+experiment=rehearsal", "harness=codex", *small, f"paths.cache={cache}") as run:
        assert run.wait_end(within_s=200) == 0, run.printed
        summary = run.summary()
    assert summary["updates"] == 1
    assert summary["tokens"]["sampled"] > 0 and summary["tokens"]["trained"] > 0
    assert summary["executions"]["infra_error"] == 0


@pytest.mark.timeout(240)
def test_the_shell_agent_works_through_everything(needs: Needs, tmp_path: Path) -> None:
    needs("namespaces", offline_problem())
    done = check("shell_agent", "scripted", cache=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    num_played = sum(scenario.needs <= dialect_of("shell_agent").abilities for scenario in SCENARIOS)
    assert num_played > 10 and f"{num_played} of {num_played} scenarios" in done.stdout
