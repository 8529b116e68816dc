"""What the runner persists in state/runner-<n>-<attempt>.log, so that a restarted runner tells the truth."""

import msgspec

from gyre_hpc.protocol.to_batch import Ended


class Began(msgspec.Struct, frozen=True, tag="began"):
    """Durable before the workspace is made: a life of an execution is never begun twice."""

    execution: str
    life: int = 0


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Durable before it is reported."""

    ended: Ended


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Acknowledged by the batch machine, or dropped by it before the end."""

    executions: tuple[str, ...]
    """Addresses of lives (protocol/identity.py)."""
    assignment: int = -1
    """The newest one taken by then: older ones, which may still want them, count for nothing. -1: of a runner that did not note it."""


Record = Began | Finish | Forgotten
