"""Timed trainers say how long their work would have taken; the leader lets that time pass. Real ones have taken it."""

from collections.abc import Callable

from gyre_hpc.shell.timers import pass_time
from gyre_hpc.train.base import Trainer
from gyre_hpc.train.timed import TimedTrainer


class Pace:
    def __init__(self, trainer: Trainer) -> None:
        self._timed = trainer if isinstance(trainer, TimedTrainer) else None

    async def __call__(self, action: str, num_tokens: Callable[[], int] = lambda: 0) -> None:
        """Let the time of `action` pass, if the trainer is a timed one."""
        if self._timed is not None:
            await pass_time(self._timed.cost_s(action, num_tokens()))
