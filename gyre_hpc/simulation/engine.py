"""An engine in a cell (or the scripted one): gate, live requests, tokens that come over time. Dies with its process."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt, Tokens
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.tokens import STOP, draw, stop_id

Word = tuple[str, Any]
"""(`tokens`, Tokens), (`end`, AttemptEnd) or (`error`, (kind, reason))."""


@dataclass(slots=True, eq=False)
class Request:
    """One taken attempt."""

    attempt: EngineAttempt
    say: Callable[[Word], None]
    given: int = 0
    ids: list[int] = field(default_factory=list)
    oldest: Version | None = None
    is_over: bool = False


class Engine:
    """`version` None: asleep."""

    def __init__(self, process: Process, token_s: float) -> None:
        self._process = process
        self._token_s = token_s
        self.term = -1
        self.is_open = False
        self.version: Version | None = None
        self.live: list[Request] = []
        self.sampled = 0

    def submit(self, attempt: EngineAttempt, say: Callable[[Word], None]) -> Request | None:
        """A request at the gate. 409 and nothing parked when it is closed or of another term."""
        if not self.is_open or attempt.term != self.term or self.version is None:
            say(("error", ("EngineBusy", "admission closed" if not self.is_open else "other term")))
            return None
        request = Request(attempt, say)
        self._process.sim.watch.admitted(self._process, attempt)
        if attempt.position and draw(attempt.sampling.key, attempt.position - 1) in _last_ids(attempt):
            # It broke off behind its last token.
            say(("end", AttemptEnd("stop", _digest(request))))
            return request
        self.live.append(request)
        self._next(request)
        return request

    def drop(self, request: Request) -> None:
        """Its client is gone."""
        self._over(request)

    def abort_all(self) -> None:
        for request in list(self.live):
            self._over(request)
            request.say(("end", AttemptEnd("abort", _digest(request))))

    def _next(self, request: Request) -> None:
        dice = self._process.sim.kernel.rng
        crowd = 1.0 + len(self.live) / 8.0
        self._process.later(dice.uniform(0.4, 1.6) * self._token_s * crowd, lambda: self._step(request))

    def _step(self, request: Request) -> None:
        """A few tokens more."""
        if request.is_over:
            return
        attempt, version = request.attempt, self.version
        assert version is not None
        ids: list[int] = []
        start = attempt.position + request.given
        for position in range(start, start + self._process.sim.kernel.rng.randint(1, 4)):
            if request.given + len(ids) >= attempt.max_new_tokens:
                break
            ids.append(draw(attempt.sampling.key, position))
            if ids[-1] in _last_ids(attempt):
                break
        request.given += len(ids)
        request.ids += ids
        request.oldest = version if request.oldest is None else min(request.oldest, version)
        self.sampled += len(ids)
        tokens = Tokens(
            start=start,
            ids=pack_ids(ids),
            logprobs=pack_floats([-1.0] * len(ids)),
            spans=(VersionSpan(version, start, start + len(ids)),),
            oldest_kv=request.oldest,
        )
        request.say(("tokens", tokens))
        is_last = ids[-1] in _last_ids(attempt)
        if is_last or request.given >= attempt.max_new_tokens:
            self._over(request)
            request.say(("end", AttemptEnd("stop" if is_last else "length", _digest(request))))
        else:
            self._next(request)

    def _over(self, request: Request) -> None:
        if not request.is_over:
            request.is_over = True
            self.live.remove(request)


def _last_ids(attempt: EngineAttempt) -> tuple[int | None, ...]:
    return STOP, stop_id(attempt.stop)


def _digest(request: Request) -> str:
    """Over what it saw and produced."""
    return hashlib.blake2b(b"".join(request.attempt.prompt) + pack_ids(request.ids), digest_size=16).hexdigest()
