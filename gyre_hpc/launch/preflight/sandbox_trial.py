"""A sandbox tried where a run's would be: it may work in itself and yet not see a folder. Inside of it even root has no more rights than the
owner of its files, so a folder that only somebody else may enter is not there.

The bind options are a runner's own (runner/plans.py): a workspace and a home below paths.scratch, and what the harness reads.
"""

import dataclasses
import shlex
import subprocess
import tempfile
from pathlib import Path

from gyre_hpc.config.place import above_scratch, cache_folder
from gyre_hpc.config.schema import Config, SandboxKind
from gyre_hpc.errors import UserError
from gyre_hpc.harnesses import create_harness
from gyre_hpc.launch.preflight.facts import Unseen
from gyre_hpc.protocol.to_runner import Begin
from gyre_hpc.runner.plans import Plans
from gyre_hpc.runner.workspaces import Workspaces
from gyre_hpc.sandboxes import Bubblewrap, Plan, create_sandbox
from gyre_hpc.sandboxes.base import START_FD
from gyre_hpc.suites import create_suite

_BEGIN = Begin("train-0-0-0", "train", 0, 1.0, 1.0)
_GATEWAY = "http://127.0.0.1:1"
_DEADLINE_S = 20.0


def check_sandbox(config: Config) -> None:
    """Raises UserError when harnesses of a run on this machine could not work in their sandboxes."""
    if config.sandbox.kind is SandboxKind.bwrap:
        create_sandbox(config.sandbox.kind)
    if config.sandbox.kind is SandboxKind.none or Bubblewrap().probe():
        return
    if unseen := try_sandbox(config):
        raise UserError(unseen.field, unseen.path, unseen.what("here"))


def try_sandbox(config: Config) -> Unseen | None:
    """None: it works. To be asked where bubblewrap does. Raises UserError when scratch folder, suite or harness are no good."""
    with tempfile.TemporaryDirectory(prefix="gyre-trial-", dir=above_scratch(config)) as root:
        plan = _plan(config, Path(root))
        sandboxed = ["/bin/sh", "-c", f'exec "$@" {START_FD}>&1', "sh", *Bubblewrap().wrap(plan)]
        try:
            done = subprocess.run(
                sandboxed, env=plan.environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEADLINE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Unseen(field="sandbox.kind", path=config.sandbox.kind.value, error=str(error))
        if done.returncode == 0:
            return None
        return _unseen(config, plan, done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}")


def _plan(config: Config, root: Path) -> Plan:
    """A runner's, but for the command: it writes to workspace and home, and looks at what the harness reads."""
    sandbox, workspaces = Bubblewrap(), Workspaces(root)
    suite, harness = create_suite(config.suite, config.seed), create_harness(config.harness.name)
    plans = Plans(config=config, run_token="", suite=suite, harness=harness, sandbox=sandbox, workspaces=workspaces)
    launch = plans.launch(_BEGIN, _GATEWAY)
    workspaces.path(_BEGIN.execution).mkdir(mode=0o700)
    home = workspaces.furnish(_BEGIN.execution, {})
    readable = tuple(path for path in launch.readable if path.exists())  # what is not installed yet is said elsewhere
    looks = [f"{{ [ -r {name} ] || {{ echo cannot read {name} >&2; exit 1; }}; }}" for name in map(shlex.quote, map(str, readable))]
    script = " && ".join([": > gyre-trial", f": > {shlex.quote(sandbox.home_inside(home))}/gyre-trial", *looks])
    return dataclasses.replace(plans.plan(_BEGIN, _GATEWAY, launch), argv=("/bin/sh", "-c", script), readable=readable)


def _unseen(config: Config, plan: Plan, error: str) -> Unseen:
    """Whose fault it is, by the path that the error names."""
    cache, scratch = cache_folder(config), above_scratch(config)
    if any(str(path) in error for path in (plan.workspace, plan.home)):
        return Unseen(field="paths.scratch", path=str(scratch), error=error)
    for path in plan.readable:
        if str(path) in error:
            field = (
                "paths.cache"
                if path.is_relative_to(cache)
                else "harness.readable"
                if str(path) in config.harness.readable
                else "harness.name"
            )
            return Unseen(field=field, path=str(path), error=error)
    return Unseen(field="sandbox.kind", path=config.sandbox.kind.value, error=error)
