"""What is left to do in a run folder? A finished run is not started again to find that out, nor one that has made more than it is asked for."""

import json

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.errors import UserError
from gyre_hpc.observability.status import read_status
from gyre_hpc.supervisor.attempts import end_of, highest_attempt
from gyre_hpc.train.checkpoint_folder import list_marked


def is_finished(config: Config) -> bool:
    """The newest attempt ended well and made all that `config` asks for now. False when anything of it cannot be told."""
    if not config.resume:
        return False
    folder = RunFolder(config.resume)
    try:
        end = json.loads(end_of(folder, highest_attempt(folder.attempts)).read_bytes())
        status = read_status(folder.status)
    except (OSError, ValueError, msgspec.MsgspecError):  # not there, or damaged: the new attempt will find out
        return False
    if status is None or end.get("exit_code") != 0:
        return False
    evaluated = not config.evaluation.after or str(config.algo.updates) in status.pass_rates
    return status.phase == "done" and status.update >= config.algo.updates and evaluated


def check_updates(config: Config) -> None:
    """Raises UserError where the run that `resume` names has made more updates than `algo.updates`: no attempt takes one back."""
    marked = list_marked(RunFolder(config.resume).checkpoints) if config.resume else []
    made = marked[-1][0].step if marked else 0
    if config.algo.updates < made:
        remedy = f"{made} updates are made already: ask for more, or for {made} to evaluate and end it there"
        raise UserError("algo.updates", config.algo.updates, remedy)
