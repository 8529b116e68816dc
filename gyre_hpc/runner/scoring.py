"""One workspace scored: JSON lines in, JSON lines out, in a process that may be killed."""

from pathlib import Path

import msgspec

from gyre_hpc.machines.execution import Scored
from gyre_hpc.suites.base import Suite


class Request(msgspec.Struct, frozen=True):
    split: str
    task: int
    workspace: str


class Answer(msgspec.Struct, frozen=True):
    """`score`, or why there is none: `error` is the class name of what was raised."""

    score: Scored | None
    error: str = ""
    reason: str = ""


def answer(suite: Suite, line: bytes) -> bytes:
    """Request -> Answer. Every error becomes an answer: it is ours, and the next workspace can be fine."""
    try:
        request = msgspec.json.decode(line, type=Request)
        score = suite.score(suite.task(request.split, request.task), Path(request.workspace))
        told = Answer(Scored(score.value, score.passed, score.parts))
    except Exception as error:  # noqa: BLE001  (process edge)
        told = Answer(None, type(error).__name__, str(error))
    return msgspec.json.encode(told)
