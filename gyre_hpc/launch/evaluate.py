"""`gyre eval RUN`: held-out tasks on one checkpoint of a run, in a run folder of its own below RUN/evaluations.

It is a run with nothing to train: the checkpoint is its newest, its last update is already made, so all that is left is
the evaluation after the last update, with the real gateway, harness and cells and nothing else live.
"""

import dataclasses
import shutil
import sys
from pathlib import Path

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import open_folder
from gyre_hpc.errors import UserError
from gyre_hpc.launch.folder import Claim, prepare
from gyre_hpc.launch.local import say_failed, stay_with
from gyre_hpc.launch.writing_up import write_up
from gyre_hpc.machines.supervision import STOPPED
from gyre_hpc.observability.events import read_events
from gyre_hpc.protocol.identity import Version
from gyre_hpc.supervisor.commands import MODULES
from gyre_hpc.train.checkpoint_folder import newest_whole

_NOTHING = 1


def main(run: str, checkpoint: str = "", tasks: int = 0, modules: str = MODULES) -> int:
    """Evaluate `checkpoint` (`<lineage>.<step>`, empty: the newest whole one); return the exit code. Raises UserError."""
    source, stored = open_folder(run)
    weights = _checkpoint(source, checkpoint)
    if (tasks or stored.evaluation.tasks) < 1:
        raise UserError("--tasks", tasks, "say how many held-out tasks, 1 or more")
    config = evaluation_of(stored, weights, _free(source.root / "evaluations", weights.name), tasks)
    claim = prepare(config, unix_s())
    shutil.copytree(weights, claim.folder.checkpoints / weights.name)
    code = stay_with(claim, config, modules)
    if code == STOPPED:
        print(f"evaluation stopped; what there is: {claim.folder.root}", file=sys.stderr)
        return code
    if code != 0:
        return say_failed(claim, code)
    return _say(claim, weights.name)


def evaluation_of(config: Config, weights: Path, root: Path, tasks: int) -> Config:
    """The configuration of a run that only evaluates `weights` (checkpoints/<lineage>.<step>) in `root`."""
    return dataclasses.replace(
        config,
        resume="",
        paths=dataclasses.replace(config.paths, run=str(root)),
        algo=dataclasses.replace(config.algo, updates=Version.parse(weights.name).step),
        evaluation=dataclasses.replace(config.evaluation, before=False, after=True, tasks=tasks or config.evaluation.tasks),
        warm_start=dataclasses.replace(config.warm_start, executions=0),
    )


def _checkpoint(source: RunFolder, name: str) -> Path:
    found = source.checkpoints / name if name else newest_whole(source.checkpoints)
    if found is None or not (found / "DONE").exists():
        whole = sorted(path.parent.name for path in source.checkpoints.glob("*/DONE"))
        raise UserError("--checkpoint", name, f"no such whole checkpoint; there is: {', '.join(whole) or 'none'}")
    return found


def _free(above: Path, name: str) -> Path:
    """evaluations/<version>, evaluations/<version>-1, …"""
    ordinal = 0
    while (root := above / (f"{name}-{ordinal}" if ordinal else name)).exists():
        ordinal += 1
    return root


def _say(claim: Claim, version: str) -> int:
    """The result, and the exit code: a rate of nothing is no success."""
    events = read_events(claim.folder.events_folder)
    last = [event for event in events if event.kind == "evaluation"][-1].fields
    if not last["total"]:
        why = [event.fields.get("reason", "") for event in events if event.kind == "alarm"][-1:]
        print(f"eval: no held-out task has a score: {' '.join(why)}; logs: {claim.folder.root / 'logs'}", file=sys.stderr)
        return _NOTHING
    rate = f"{100 * float(last['pass_rate']):.1f} %"
    write_up(claim.folder)
    print(f"eval: pass rate {rate} on {last['total']} held-out tasks, version {version}, report: {claim.folder.report}", flush=True)
    return 0
