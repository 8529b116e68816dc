"""An engine in a cell (or the scripted one): gate, live requests, tokens that come over time, pages. Dies with its process.

The gate and the books of pages are those of the real engines; what is simulated is the computing.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.engines.prefix_ledger import PrefixLedger
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt, Tokens
from gyre_hpc.machines.cell.gate import refusal
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids, unpack_ids
from gyre_hpc.simulation.process import Process
from gyre_hpc.simulation.tokens import STOP, draw, stop_id

Word = tuple[str, Any]
"""(`tokens`, Tokens), (`end`, AttemptEnd) or (`error`, (kind, reason))."""

_PROMPT_S = 0.05
"""What a prompt takes that another engine computes."""
PAGE, KV_TOKENS, LONGEST = 8, 2048, 416
"""Of the simulated engines, in tokens."""


@dataclass(slots=True, eq=False)
class Request:
    """One taken attempt."""

    attempt: EngineAttempt
    say: Callable[[Word], None]
    prompt: list[int]
    given: int = 0
    ids: list[int] = field(default_factory=list)
    oldest: Version | None = None
    is_over: bool = False
    pages: list[int] = field(default_factory=list)
    num_cached: int = 0


class Engine:
    """`version` None: asleep."""

    def __init__(self, process: Process, token_s: float, prefill_trouble: Callable[[], str] | None = None) -> None:
        """prefill_trouble: another engine computes its prompts; why it cannot now (empty: it can). None: it does so itself."""
        self._process = process
        self._prefill_trouble = prefill_trouble
        self._token_s = token_s
        self.term = -1
        self.is_open = False
        self.version: Version | None = None
        self.live: list[Request] = []
        self.sampled = self.prefilled = self.cached = 0
        self.books = _new_books()
        """Of the pages in memory now; sleep throws them away."""

    def submit(self, attempt: EngineAttempt, say: Callable[[Word], None]) -> Request | None:
        """A request at the gate. 409 and nothing parked when it is closed or of another term."""
        refused = refusal(str(attempt.term), is_open=self.is_open, term=self.term)
        if refused is not None:
            say(("error", ("EngineBusy", refused)))
            return None
        request = Request(attempt, say, unpack_ids(b"".join(attempt.prompt)).tolist())
        self._process.sim.watch.admitted(self._process, self, attempt)
        if attempt.position and draw(attempt.sampling.key, attempt.position - 1) in _last_ids(attempt):
            # It broke off behind its last token.
            request.is_over = True
            say(("end", AttemptEnd("stop", _digest(request))))
            return request
        self.live.append(request)
        if self.version is not None:
            self._hold(request)
            if self._prefill_trouble is None:
                self._next(request)
            elif self._is_prefilled(request):
                self._process.later(self._process.sim.kernel.short(_PROMPT_S), lambda: self._prompted(request))
        return request

    def _prompted(self, request: Request) -> None:
        """Its peer was at work on its prompt until now."""
        if not request.is_over and self._is_prefilled(request):
            self._next(request)

    def _is_prefilled(self, request: Request) -> bool:
        """Else it is over."""
        assert self._prefill_trouble is not None
        trouble = self._prefill_trouble()
        if trouble:
            self._process.sim.counts["prompts_not_computed"] += 1
            self._over(request)
            request.say(("error", ("CellLost", trouble)))
        return not trouble

    def wake(self, version: Version) -> None:
        self.version, self.books = version, _new_books()

    def sleep(self) -> None:
        """Its memory is given back, whoever reads it."""
        self.version, self.books = None, _new_books()

    def update(self, version: Version) -> None:
        """Between two steps: what older weights computed is found no more, and computed anew for those who go on."""
        if version == self.version:
            return
        self.publish_all()
        for request in self.live:
            self.books.release(request.pages, request.attempt.call)
            request.pages = []
        self.books.forget()
        self.version = version
        for request in list(self.live):
            self._hold(request)
            if self._prefill_trouble is not None:
                self._is_prefilled(request)

    def drop(self, request: Request) -> None:
        """Its client is gone."""
        self._over(request)

    def abort_all(self, moved: Mapping[str, str]) -> None:
        """`moved`: call -> the cell that has its KV now."""
        for request in list(self.live):
            self._over(request)
            request.say(("end", AttemptEnd("abort", _digest(request), moved.get(request.attempt.call, ""))))

    def publish_all(self) -> None:
        """Full pages of those that run can be found."""
        for request in self.live:
            if request.pages:
                self._publish(request)

    def _publish(self, request: Request) -> None:
        assert self.version is not None
        self.books.publish(request.pages, [*request.prompt, *request.ids], self.version, request.attempt.call)

    def _hold(self, request: Request) -> None:
        """What is cached of its context, and room for the rest; without room it goes on without pages."""
        assert self.version is not None
        ids = [*request.prompt, *request.ids]
        held = self.books.hold(ids, len(ids) + request.attempt.max_new_tokens + 1, self.version, request.attempt.call)
        request.pages, cached = held if held is not None else ([], 0)
        request.num_cached, request.oldest = cached, None
        self.cached += cached
        self.prefilled += len(ids) - cached
        if cached:
            self._process.sim.watch.reuses(self._process, self, request.pages[: cached // PAGE])

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
            cached=request.num_cached,
        )
        request.say(("tokens", tokens))
        is_last = ids[-1] in _last_ids(attempt)
        if is_last or request.given >= attempt.max_new_tokens:
            self._over(request)
            request.say(("end", AttemptEnd("stop" if is_last else "length", _digest(request))))
        else:
            self._next(request)

    def _over(self, request: Request) -> None:
        if request.is_over:
            return
        request.is_over = True
        self.live.remove(request)
        if request.pages:
            self._publish(request)
            self.books.release(request.pages, request.attempt.call)
            request.pages = []


def _new_books() -> PrefixLedger:
    return PrefixLedger(KV_TOKENS, PAGE, False, LONGEST)


def _last_ids(attempt: EngineAttempt) -> tuple[int | None, ...]:
    return STOP, stop_id(attempt.stop)


def _digest(request: Request) -> str:
    """Over what it saw and produced."""
    return hashlib.blake2b(b"".join(request.attempt.prompt) + pack_ids(request.ids), digest_size=16).hexdigest()
