"""The SGLang engine: our own surface and calls in front of a server that computes them.

State of the server, noted with its holder so that a successor of this process knows it:

    (new) ──start──▶ asleep ──wake──▶ awake ──sleep──▶ asleep
                        any change: `changing` meanwhile

Invariants: a change happens while the server has no request; one that fails, or is broken off, leaves an engine that is lost
(`failure`), because nobody knows what the server has; memory is resumed only after it was released, and released only when the
server says that it is idle: either would end it otherwise.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gyre_hpc import clock
from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.request import BadRequest
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.sglang.attempts import Attempts
from gyre_hpc.engines.sglang.memory import kv_room
from gyre_hpc.engines.sglang.pace import Pace
from gyre_hpc.engines.sglang.parts import Address, Holder, Measured, NotAnswered, ServerLost, Upstream, WeightSender
from gyre_hpc.engines.sglang.sent import Label
from gyre_hpc.engines.sglang.watch import Watch
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.transport.base import SnapshotStore

_LOG = logging.getLogger(__name__)

IDLE_S = 60.0
"""Until a server without requests of ours says that it is idle: one step of its scheduler."""
FLUSH_S = 10.0


class SGLangEngine(ServedEngine):
    """connect: address of the server -> its API, to be called in the loop. seeded: the server draws by the seed of a call.
    keep_kv: KV of older weights stays in use at an update. namespace: see Attempts. least_kv: tokens of KV without which a server is of
    no use. facts: more of what /server_info shows."""

    def __init__(
        self,
        *,
        holder: Holder,
        connect: Callable[[Address], Upstream],
        sender: WeightSender,
        memory: Measured,
        store: SnapshotStore,
        run_token: str,
        host: str,
        port: int = 0,
        max_context: int,
        vocab_size: int,
        decode: Decode | None = None,
        keep_kv: bool = False,
        seeded: bool = False,
        kv: str = "none",
        namespace: str = "",
        least_kv: int = 0,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(run_token=run_token, host=host, port=port, max_context=max_context, vocab_size=vocab_size, decode=decode)
        self.capabilities = EngineCapabilities(kv=kv, sampling="counter" if seeded else "own")
        self._holder, self._connect, self._sender, self._memory, self._store = holder, connect, sender, memory, store
        self._keep_kv, self._seeded, self._namespace, self._least_kv = keep_kv, seeded, namespace, least_kv
        self._facts = dict(facts or {})
        self._pace = Pace(clock.monotonic_s)
        self._upstream: Upstream | None = None
        self._attempts: Attempts | None = None
        self._watch: Watch | None = None
        self._is_awake, self._num_total_tokens = False, 0
        self._changing = asyncio.Lock()

    async def start(self) -> str:
        """Raises ServerLost, and UserError when the server has too little memory."""
        upstream = self._upstream = self._connect(await self._holder.start())
        self._attempts = Attempts(
            upstream,
            self.book,
            name=secrets.token_hex(8),
            decode=self.decode,
            pace=self._pace,
            on_lost=self._on_lost,
            seeded=self._seeded,
            namespace=self._namespace,
        )
        self._watch = Watch(num_heard=self._attempts.all_heard, is_well=upstream.is_well, on_lost=self._attempts.lose)
        self._watch.start()
        await self._attempts.halt("asleep")
        noted = self._holder.noted if self._holder.was_adopted else ""
        if noted:
            # Should it not do what is asked of it now, the next of us is to start another one.
            self._holder.note("changing")
            await upstream.abort_all()
        self._num_total_tokens = kv_room(await upstream.info(), self._least_kv)
        await self._sender.join(upstream)
        if noted == "asleep":
            self._holder.note(noted)
        else:
            await self._release()
        return await super().start()

    async def close(self) -> None:
        async with contextlib.AsyncExitStack() as after_the_calls:
            # The last one first, each of them whatever becomes of the others.
            after_the_calls.push_async_callback(self._holder.stop)
            if self._upstream is not None:
                after_the_calls.push_async_callback(self._upstream.close)
            after_the_calls.push_async_callback(self._sender.close)
            if self._attempts is not None:
                after_the_calls.push_async_callback(self._attempts.close)
            if self._watch is not None:
                after_the_calls.push_async_callback(self._watch.close)
            await super().close()

    # Memory and weights

    async def sleep(self) -> list[RankMemory]:
        assert not len(self.book), f"sleep with {len(self.book)} live requests"
        async with self._changing:
            self._check()
            if self._is_awake:
                # Those that were answered may not have ended at the server yet.
                await self._calls.drained()
                await self._release()
            return await self._memory.measure()

    async def wake(self, version: Version) -> list[RankMemory]:
        async with self._changing:
            self._check()
            if self._is_awake:  # the step is tried again: it failed after this part of it
                assert version == self._calls.label.version, f"wake with {version} of an engine that serves {self.version_text()}"
                return await self._memory.measure()
            with self._store.hold(version) as tensors:
                async with self._change("awake"):
                    await self._server.resume_memory()
                    await self._sender.send(self._server, version, tensors, flush=True)
            self._calls.label = Label(version=version, oldest=version)
            self._is_awake = True
            self._calls.go_on("asleep", "pause")
            return await self._memory.measure()

    async def update_weights(self, version: Version) -> None:
        async with self._changing:
            self._check()
            assert self._is_awake, "new weights for an engine that sleeps"
            if version == self._calls.label.version:
                return
            with self._store.hold(version) as tensors:
                try:
                    await self._calls.halt("update")
                    if self._calls.guests.may_linger:
                        await self._idle()
                    async with self._change("awake"):
                        await self._sender.send(self._server, version, tensors, flush=not self._keep_kv)
                    self._calls.label = Label(version=version, oldest=self._calls.label.oldest if self._keep_kv else version)
                    if not self._keep_kv:
                        self._calls.retracted()
                finally:
                    self._calls.go_on("update")

    async def _release(self) -> None:
        # A request to a server without memory would end it: should one be taken now, it waits until the server wakes.
        await self._calls.halt("asleep")
        await self._idle()
        async with self._change("asleep"):
            self._is_awake = False
            await self._server.release_memory()

    async def _idle(self) -> None:
        """Until the server, which stands still, says that it has no request; it forgets all prefixes. Raises ServerLost."""
        if not await self._server.flush(IDLE_S):
            self._calls.lose(f"not idle within {IDLE_S:g} s, without a request of ours")
        self._check()
        self._calls.guests.may_linger = False

    @contextlib.asynccontextmanager
    async def _change(self, to: str) -> AsyncIterator[None]:
        """Of what the server has: whole, or the engine is lost."""
        self._holder.note("changing")
        try:
            yield
            self._check()
            self._holder.note(to)
        except BaseException as error:
            self._calls.lose(f"the change to `{to}` broke off: {error!r}")
            raise

    def _check(self) -> None:
        """Raises ServerLost: what a lost server has is not known, so it is neither asleep nor awake."""
        if self._calls.lost:
            raise ServerLost(self._calls.lost)

    def _on_lost(self, reason: str) -> None:
        self.book.fail(reason)
        try:
            self._holder.note("changing")  # nobody is to adopt it
        except OSError:
            _LOG.exception("a lost server could not be marked as such")

    # Calls

    def submit(self, call: LiveCall) -> None:
        self._calls.begin(call)

    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        self._calls.end(call, reason, moved_to)

    async def prompt(self, body: Mapping[str, Any], version: str) -> str:
        """Compute a prompt for another server, as Prefill's."""
        # A server keeps KV that it was sent, also that of a request which failed: none of other weights may reach it.
        if version != self.version_text():
            raise NotAnswered(f"the server that prefills has weights {self.version_text()}, not {version}")
        return await self._calls.guests.prompt(body, version)

    async def pause(self, mode: PauseMode) -> None:
        calls = self._calls
        await calls.halt("pause")
        if mode is PauseMode.retract:
            # Without a request all KV at the server may go.
            calls.retracted()
        if mode is PauseMode.abort:
            for call in self.book.live():
                calls.end(call, "aborted by /pause_generation")
            await calls.drained()

    async def resume(self) -> None:
        self._calls.go_on("pause")

    async def flush_cache(self) -> bool:
        if len(self.book):
            return False
        async with self._changing:
            await self._calls.drained()
            if not self._is_awake or not await self._server.flush(FLUSH_S):
                return False
            served = self._calls.label.version
            self._calls.label = Label(version=served, oldest=served)
            return True

    async def relabel(self, version: str) -> None:
        try:
            await self.update_weights(Version.parse(version))
        except (KeyError, ValueError):
            raise BadRequest(f"new_version={version!r}: the snapshot store holds {[str(v) for v in self._store.versions()]}") from None

    # What it tells of itself

    def pids(self) -> tuple[int, ...]:
        return self._holder.pids()

    def failure(self) -> str | None:
        lost = self._attempts.lost if self._attempts is not None else ""
        causes = [cause for cause in (lost, self._holder.failure()) if cause]
        return f"SGLang: {'; '.join(causes)}" if causes else None

    def counters(self) -> dict[str, int]:
        """`retracted`: calls whose KV was taken away, by us for new weights or by SGLang for want of memory. decode_steps: see Pace."""
        counted = self._attempts.counters if self._attempts is not None else {"sampled": 0, "prefilled": 0, "cached": 0, "retracted": 0}
        return {**counted, "decode_steps": self._pace.num_steps()}

    def curve(self) -> dict[int, float]:
        return self._pace.curve()

    def version_text(self) -> str:
        return str(self._calls.label.version)

    def loads(self) -> Loads:
        """Of the calls here; SGLang's own figures (/v1/loads) would have to be asked for, and be older."""
        running = self._pace.num_running
        return Loads(
            num_running=running,
            num_waiting=max(len(self._calls) - running, 0),
            num_used_tokens=self._calls.num_used_tokens(),
            num_total_tokens=self._num_total_tokens,
        )

    def facts(self) -> dict[str, Any]:
        """num_guests: prompts it computes for another server now."""
        now = {"is_asleep": not self._is_awake, "counters": self.counters(), "num_guests": len(self._calls.guests)}
        return {"engine": "sglang"} | now | self._facts

    @property
    def _calls(self) -> Attempts:
        assert self._attempts is not None, "the engine was not started"
        return self._attempts

    @property
    def _server(self) -> Upstream:
        assert self._upstream is not None, "the engine was not started"
        return self._upstream
