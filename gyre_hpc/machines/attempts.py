"""A run that was started again: which of two starts may speak to the other."""

import enum


class Sender(enum.Enum):
    """Who wrote a message, as its receiver sees it."""

    ours = "ours"
    over = "over"
    """It belongs to an earlier start of the run, which is over: nothing it says counts."""
    newer = "newer"
    """It belongs to a later start: the receiver's own is over."""


def sender_of(attempt: int, own: int) -> Sender:
    """`attempt`: of the message; `own`: of the receiver."""
    if attempt < own:
        return Sender.over
    return Sender.ours if attempt == own else Sender.newer
