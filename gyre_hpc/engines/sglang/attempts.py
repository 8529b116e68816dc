"""Calls of ours as requests to SGLang: a call goes on in as many of them as it takes.

    taken ──▶ waits for the gate ──▶ upstream request ──▶ finished, aborted, given up
                     ▲                     │
                     └── it was ended to stand still, or ended by itself too early

SGLang is never paused. Standing still is: no request is begun any more, each that runs is ended, and its answer read to the end,
so that no token it computed is lost. Going on is a new request with the prompt and all tokens so far.

Invariants:
  - once `halt` returned the server has no request of ours, until `go_on`;
  - every request has one version (sent.py refuses anything else);
  - a request is aborted only when the server knows it (one that it does not know it would forget to abort), by a rid no other
    begins with (it compares beginnings);
  - every task here is owned by its call, every call by `close`, and what ends badly ends as one of: the call refused, the call
    given up, the server lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.calls import CallBook, LiveCall
from gyre_hpc.engines.sglang.guests import Guests
from gyre_hpc.engines.sglang.pace import Pace
from gyre_hpc.engines.sglang.parts import NotAnswered, Refused, ServerLost, Upstream
from gyre_hpc.engines.sglang.sent import Label, Sent
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.protocol.identity import Version

_LOG = logging.getLogger(__name__)

END_S = 120.0
"""From the wish to end a request until it has ended: one step of the server's scheduler, which may be a long prefill."""
TAIL_S = 10.0
"""From the last event of an answer until its connection is free."""


class Attempts:
    def __init__(
        self,
        upstream: Upstream,
        book: CallBook,
        *,
        name: str,
        decode: Decode | None,
        pace: Pace,
        on_lost: Callable[[str], None],
        seeded: bool = False,
        namespace: str = "",
        end_s: float = END_S,
    ) -> None:
        """name: begins every rid, different for every client of this server. seeded: it draws by the seed of a call.
        namespace: of KV that outlives its weights in a storage: there it is found under this name and its version alone."""
        self._upstream, self._book, self._name, self._decode, self._pace = upstream, book, name, decode, pace
        self._on_lost, self._seeded, self._namespace, self._end_s = on_lost, seeded, namespace, end_s
        self.label = Label(version=Version(), oldest=Version())
        self.lost = ""
        """Why the server is of no use any more; empty: it is."""
        self.counters = {"sampled": 0, "prefilled": 0, "cached": 0, "retracted": 0}
        self.num_heard = 0
        """Chunks so far, without those of guests."""
        self.guests = Guests(upstream, on_lost=self.lose)
        self._sents: dict[int, Sent] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._running: dict[int, Sent] = {}
        """Those that the server has."""
        self._holds: set[str] = set()
        """Why it stands still; empty: it does not."""
        self._still = asyncio.Event()
        self._still.set()

    def __len__(self) -> int:
        return len(self._sents)

    @property
    def num_upstream(self) -> int:
        return len(self._running)

    def all_heard(self) -> int | None:
        """Chunks so far, with those of guests; None: nothing is asked of the server now."""
        return self.num_heard + self.guests.num_heard if self._running or len(self.guests) else None

    def num_used_tokens(self) -> int:
        """Prompt and output of the requests the server has; a prefix that several share counts for each."""
        return sum(sent.num_tokens for sent in self._running.values())

    def begin(self, call: LiveCall) -> None:
        if self.lost:
            self._book.give_up(call, self.lost)
            return
        sent = Sent(call, self._decode)
        self._sents[call.number] = sent
        task = self._tasks[call.number] = asyncio.create_task(self._run(sent))
        # Not at the end of the task's own code: of one that is cancelled before its first step none is run.
        task.add_done_callback(lambda _: self._forget(sent))

    def end(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        """Soon, with its tokens so far."""
        sent = self._sents.get(call.number)
        if sent is not None and not sent.reason:
            sent.reason, sent.moved_to = reason, moved_to
            sent.news.set()

    async def halt(self, why: str) -> None:
        """Stand still until `go_on(why)`; returns once the server has no request. Raises ServerLost."""
        self._holds.add(why)
        self._tell_all()
        await self.guests.end(why)
        await self._still.wait()
        if self.lost:
            raise ServerLost(self.lost)

    def go_on(self, *whys: str) -> None:
        """These reasons to stand still are gone."""
        self._holds.difference_update(whys)
        if not self._holds and not self.lost:
            self.guests.refusal = ""
        self._tell_all()

    async def drained(self) -> None:
        """Until none of the calls of now is here any more; those that were answered are ended at the server too. It does not wait for
        calls that come meanwhile: they may have to wait for whoever waits here."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def retracted(self) -> None:
        """The KV of all calls is gone, or may go."""
        for sent in self._sents.values():
            if sent.attempt:
                sent.num_retractions += 1
                self.counters["retracted"] += 1

    def lose(self, reason: str) -> None:
        """The server is of no use any more: every call ends, after the tokens it has."""
        if self.lost:
            return
        self.lost = reason
        self._on_lost(reason)
        self.guests.stop(reason)
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self.guests.end("the engine ends")
        await self.drained()

    def _tell_all(self) -> None:
        for sent in self._sents.values():
            sent.news.set()

    async def _run(self, sent: Sent) -> None:
        try:
            await self._answer(sent)
        except Refused as error:
            self._book.give_up(sent.call, f"SGLang refused the request: {error}", status=400)
        except NotAnswered as error:
            self._book.give_up(sent.call, f"SGLang gave the request up: {error}")
        except ServerLost as error:
            self.lose(str(error))
        except Exception as error:  # noqa: BLE001 - edge of a task: nobody else would see it
            _LOG.exception("a call at SGLang failed")
            self.lose(f"a call failed: {error!r}")

    def _forget(self, sent: Sent) -> None:
        del self._sents[sent.call.number], self._tasks[sent.call.number]

    async def _answer(self, sent: Sent) -> None:
        self._deliver(sent.at_once())
        while sent.finish is None:
            while self._holds and not sent.reason:
                sent.news.clear()
                await sent.news.wait()
            if sent.reason:
                self._deliver(sent.abort())
            else:
                # Nothing was awaited since the gate was seen open.
                await self._attempt(sent)

    async def _attempt(self, sent: Sent) -> None:
        """One upstream request, from its beginning to its very end."""
        body = sent.begin(f"{self._name}.{sent.call.number}.{sent.attempt}.", seeded=self._seeded)
        if self._namespace:
            body["extra_key"] = f"{self._namespace}/{self.label.version}"
        self._running[sent.call.number] = sent
        self._still.clear()
        try:
            was_ended = await self._watched(sent, body)
        finally:
            del self._running[sent.call.number]
            if not self._running:
                self._still.set()
        _judge(sent, was_ended)

    async def _watched(self, sent: Sent, body: Mapping[str, Any]) -> bool:
        """Reads the request's answer; True: it was ended from here. Raises what reading raises."""
        reader = asyncio.create_task(self._read(sent, body, self.label))
        reader.add_done_callback(lambda _: sent.news.set())
        was_ended = False
        try:
            while not (reader.done() or sent.upstream_finish is not None or self._is_to_end(sent)):
                sent.news.clear()
                await sent.news.wait()
            if not reader.done() and sent.upstream_finish is None:
                was_ended = True
                await self._end(sent, str(body["rid"]), reader)
            await asyncio.wait((reader,), timeout=TAIL_S)
        finally:
            # One that is still at it has had its last event, or nobody wants it any more: closing its connection ends it.
            reader.cancel()
            await asyncio.wait((reader,))
        if not reader.cancelled():
            reader.result()
        return was_ended

    def _is_to_end(self, sent: Sent) -> bool:
        return bool(self._holds or sent.reason or sent.finish is not None)

    async def _end(self, sent: Sent, rid: str, reader: "asyncio.Task[None]") -> None:
        """Have the server end a request, and wait until it has. Raises ServerLost when it does not."""
        asking = asyncio.create_task(self._ask_to_end(sent, rid))
        try:
            await asyncio.wait((reader, asking), timeout=self._end_s, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
                await asyncio.wait((reader,), timeout=self._end_s)
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
        if not reader.done():
            raise ServerLost(f"a request did not end within {self._end_s:g} s")

    async def _ask_to_end(self, sent: Sent, rid: str) -> None:
        await sent.known.wait()
        await self._upstream.abort(rid)

    async def _read(self, sent: Sent, body: Mapping[str, Any], label: Label) -> None:
        is_running = False
        try:
            async with contextlib.aclosing(self._upstream.generate(body)) as chunks:
                async for chunk in chunks:
                    self.num_heard += 1
                    sent.known.set()
                    before = sent.num_retractions
                    piece = sent.take(chunk, label)
                    self.counters["retracted"] += sent.num_retractions - before
                    if chunk.ids and not is_running:
                        is_running = True
                        self._pace.first_token()
                        self.counters["cached"] += chunk.cached
                        self.counters["prefilled"] += len(body["input_ids"]) - chunk.cached
                    self._deliver(piece)
                    if sent.finish is not None or sent.upstream_finish is not None:
                        sent.news.set()
        finally:
            if is_running:
                self._pace.end()
        if sent.upstream_finish is None:
            raise ServerLost("an answer broke off")

    def _deliver(self, piece: Piece | None) -> None:
        if piece is not None:
            if piece.ids:
                self.counters["sampled"] += len(piece.ids)
                self._pace.tokens(len(piece.ids))
            self._book.deliver([piece])


def _judge(sent: Sent, was_ended: bool) -> None:
    """Whether a call that has not finished may go on after its last request. Raises Refused, NotAnswered."""
    end = sent.upstream_finish
    if sent.finish is not None or was_ended or end is None:
        return
    if end["type"] == "abort":
        code = end.get("status_code")
        kind = Refused if isinstance(code, int) and 400 <= code < 500 else NotAnswered
        raise kind(str(end.get("message")))
    if not sent.has_grown:
        # It would be asked the same for ever.
        raise NotAnswered(f"an answer without a token: {end}")
