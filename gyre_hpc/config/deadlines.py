"""Deadlines that follow from several keys: what a foreign server adds to what a cell takes by itself. Seconds."""

from gyre_hpc.config.cluster_schema import ClusterKind
from gyre_hpc.config.engine_schema import EngineKind
from gyre_hpc.config.schema import Config


def cell_start_s(config: Config) -> float:
    """Until a cell has registered. It does so once its engine serves, so the start of its server comes on top."""
    own = config.cluster.start_deadline_s
    return own + config.engine.sglang.start_deadline_s if config.engine.kind is EngineKind.sglang else own


def switch_step_s(config: Config) -> float:
    """Of one step of a role change. The step that wakes a server brings it all its weights too."""
    own = config.cluster.switch_deadline_s
    return own + config.engine.sglang.update_deadline_s if config.engine.kind is EngineKind.sglang else own


def no_progress_s(config: Config) -> float:
    """Nothing at all happens for so long: the run ends. Longer than the slowest execution, and than a cell's start."""
    return max(300.0, 3 * config.suite.hard_deadline_s) + cell_start_s(config) - config.cluster.start_deadline_s


ENDING_S = 25.0
"""What a stop in order takes beside the last save: the controller's grace, then everybody's."""


def last_save_s(config: Config) -> float:
    """Longest that a stop in order waits for the last save: on SLURM the job is over signal_s after it was told."""
    if config.cluster.kind is not ClusterKind.slurm:
        return config.checkpoint.stop_s
    return max(0.0, min(config.checkpoint.stop_s, config.cluster.slurm.signal_s - ENDING_S))


_MOST_FOR_ENDING = 2 / 3


def save_within_s(left_s: float) -> float:
    """Of what SLURM leaves a job whose end it has told, the part in which a stop may still wait for the last save."""
    return max(0.0, left_s - min(ENDING_S, _MOST_FOR_ENDING * left_s))
