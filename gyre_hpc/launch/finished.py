"""Is there anything left to do in a run folder? A finished run is not started again to find that out."""

import json

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.observability.status import read_status
from gyre_hpc.supervisor.attempts import end_of, highest_attempt


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
