"""batch -> runner: what should run here."""

import msgspec


class Begin(msgspec.Struct, frozen=True):
    """One execution to run."""

    execution: str
    split: str
    """Suite split: `train` or `heldout`."""
    task: int
    """Index of the task in that split."""
    soft_deadline_s: float
    hard_deadline_s: float
    life: int = 0
    """Of the execution: one that is begun again with what was recorded of the one before has the next number."""


class Assignment(msgspec.Struct, frozen=True, tag="assignment"):
    """Everything that should run here and has not been reported ended; begin what is new, stop what is gone."""

    number: int
    begin: tuple[Begin, ...] = ()
    acked: tuple[str, ...] = ()
    """Lives of executions (addresses, identity.py) whose end the batch machine has recorded, or waits for no more: forget them."""
