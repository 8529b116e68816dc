"""Calls an engine has taken and not yet answered to the end, and the gate in front of them.

Lives in the asyncio loop alone. Lifecycle of a call:

    POST /generate ─gate open─▶ taken ─pieces─▶ finished ─answer written─▶ gone
                   └closed, or other term─▶ 409 at once (never parked)
"""

import asyncio
import itertools

from gyre_hpc import clock
from gyre_hpc.engines.answer import Answer, Piece
from gyre_hpc.engines.request import Request
from gyre_hpc.machines.cell.gate import refusal


class LiveCall:
    """One taken request."""

    def __init__(self, number: int, request: Request, version: str) -> None:
        self.number, self.request = number, request
        self.answer = Answer(rid=request.rid, num_prompt=len(request.input_ids), return_logprob=request.return_logprob, version=version)
        self.error: str | None = None
        """Why there is no more of the answer."""
        self.status = 500
        """HTTP status of `error`: 500, the engine failed, another may not; 4xx, the request is wrong in itself."""
        self.changed = asyncio.Event()
        self.gone = asyncio.Event()
        self._begun = clock.monotonic_s()

    @property
    def is_over(self) -> bool:
        return self.answer.finish is not None or self.error is not None

    def age_s(self) -> float:
        return clock.monotonic_s() - self._begun


class CallBook:
    """All live calls by number and by rid."""

    def __init__(self) -> None:
        self.term = -1
        """Term of the last order to open or close."""
        self.is_open = False
        self._numbers = itertools.count()
        self._by_number: dict[int, LiveCall] = {}
        self._by_rid: dict[str, LiveCall] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def live(self) -> list[LiveCall]:
        return list(self._by_number.values())

    def of_rid(self, rid: str) -> LiveCall | None:
        return self._by_rid.get(rid)

    def refusal(self, term: str | None) -> str | None:
        """Why a request with this X-Gyre-Term (None: without) is not taken now; None: it is."""
        return refusal(term, is_open=self.is_open, term=self.term)

    def take(self, request: Request, version: str) -> LiveCall:
        """From now on the rid means this call, whoever had it before."""
        call = LiveCall(next(self._numbers), request, version)
        self._by_number[call.number] = self._by_rid[request.rid] = call
        return call

    def drop(self, call: LiveCall) -> None:
        """The call was answered, or its client left."""
        del self._by_number[call.number]
        if self._by_rid.get(call.request.rid) is call:
            del self._by_rid[call.request.rid]
        call.gone.set()

    def deliver(self, pieces: list[Piece]) -> None:
        """Hand pieces to their calls; those of calls already gone are dropped."""
        for piece in pieces:
            call = self._by_number.get(piece.number)
            if call is not None and not call.is_over:
                call.answer.add(piece)
                call.changed.set()

    def give_up(self, call: LiveCall, reason: str, *, status: int = 500) -> None:
        """This call ends with an error, after the tokens it has."""
        if not call.is_over:
            call.error, call.status = reason, status
            call.changed.set()

    def fail(self, reason: str) -> None:
        """The engine broke: every live call ends with HTTP 500."""
        self.is_open = False
        for call in self.live():
            self.give_up(call, reason)
