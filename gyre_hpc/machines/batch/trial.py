"""Phases of a run and the trials (warm start, evaluation) in which single executions run with nothing else live."""

import enum


class Phase(enum.Enum):
    """starting -> warm_collect -> warm_fit -> eval_before -> training -> eval_after -> done

    A phase without work is passed at once. Training begins at the first version; evaluations run on a frozen one.
    """

    starting = "starting"
    warm_collect = "warm_collect"
    warm_fit = "warm_fit"
    eval_before = "eval_before"
    training = "training"
    eval_after = "eval_after"
    done = "done"


EVALUATIONS = (Phase.eval_before, Phase.eval_after)


def trial_of(phase: Phase, updates: int) -> tuple[str, int] | None:
    """(purpose, slot) of the executions that run in `phase`; None in other phases."""
    if phase is Phase.warm_collect:
        return "warm", 0
    if phase is Phase.eval_before:
        return "eval", 0
    if phase is Phase.eval_after:
        return "eval", updates
    return None
