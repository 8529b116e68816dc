"""An engine that takes the time a real one would, and computes nothing: no torch, many in one process.

Same HTTP surface, gate, continuation and version spans as the embedded engine; tokens come from a counter-based source,
log-probs are -1.0. Waiting is done by the `timer` it is given.
"""

from collections.abc import Callable
from typing import Any, Protocol

from gyre_hpc import clock
from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.kv_pages import KvPages
from gyre_hpc.engines.request import BadRequest
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.engines.timed_core import TimedCall, TimedCore, TokenSource, pseudo_random_source
from gyre_hpc.engines.timed_kv import TimedKV
from gyre_hpc.engines.timed_speed import Speed
from gyre_hpc.errors import UserError
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


Timer = Callable[[float, Callable[[], None]], TimerHandle]
"""(seconds, callback) -> handle: call back once on the loop, unless cancelled."""


class TimedEngine(ServedEngine):
    """Raises UserError when its KV cannot hold one full context."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        timer: Timer,
        run_token: str,
        host: str,
        port: int = 0,
        rank: int = 0,
        max_context: int = 512,
        vocab_size: int = 300,
        source: TokenSource | None = None,
        stream_tokens: int = 16,
        now: Callable[[], float] = clock.monotonic_s,
        decode: Decode | None = None,
        moves_kv: bool = False,
    ) -> None:
        super().__init__(run_token=run_token, host=host, port=port, max_context=max_context, vocab_size=vocab_size, decode=decode)
        needed = -(-max_context // config.page_size) * config.page_size
        if config.kv_tokens < needed:
            raise UserError("engine.kv_tokens", config.kv_tokens, f"make it at least {needed}: one call of the longest context")
        self._config, self._timer, self._now, self._rank = config, timer, now, rank
        self._speed = Speed(
            tokens_per_s=config.timed_tokens_per_s,
            half=config.timed_half,
            prefill_tokens_per_s=config.timed_prefill_tokens_per_s,
            time_scale=config.time_scale,
        )
        self._core = TimedCore(
            self._speed,
            source=source or pseudo_random_source(vocab_size),
            kv_tokens=config.kv_tokens,
            page_size=config.page_size,
            max_batch=config.max_batch,
            keep_kv=config.keep_kv,
            chunk=stream_tokens,
            max_context=max_context,
            decode=decode,
        )
        self.capabilities = EngineCapabilities(kv="pages" if moves_kv else "none", sampling="counter")
        if moves_kv:
            self.kv = TimedKV(self, config, timer)
        self.is_awake = False
        self._handle: TimerHandle | None = None

    async def close(self) -> None:
        await super().close()
        self._cancel()

    async def sleep(self) -> list[RankMemory]:
        assert not self._core.num_live and not len(self.book), f"sleep with {len(self.book)} live requests"
        assert not self._core.pages.is_lending, "sleep while other cells read or write pages"
        self.is_awake = False
        self._core.flush_cache()
        return [RankMemory(rank=self._rank, free=self._config.kv_tokens, used=0)]

    async def wake(self, version: Version) -> list[RankMemory]:
        assert not self.is_awake, "already awake"
        self.is_awake = True
        self._core.update(self._now(), version)
        self._core.set_paused(self._now(), False)
        return [RankMemory(rank=self._rank, free=0, used=self._config.kv_tokens)]

    async def update_weights(self, version: Version) -> None:
        self._core.update(self._now(), version)
        self._settle()

    @property
    def pages(self) -> KvPages:
        return self._core.pages

    @property
    def takes_calls(self) -> bool:
        return self.book.is_open

    @property
    def version(self) -> Version:
        return self._core.version

    def publish_all(self) -> None:
        self._core.publish_all(self._now())
        self._settle()

    def admit(self) -> None:
        self._core.admit(self._now())
        self._settle()

    def counters(self) -> dict[str, int]:
        """A real engine counts a token when it is sampled: those that wait for the end of their chunk are in it."""
        self._core.advance(self._now())
        self._settle()
        counted = self._core.counters
        return counted | {"sampled": counted["sampled"] + self._core.num_held_back}

    def curve(self) -> dict[int, float]:
        sizes = sorted({1, 2, 4, 8, 16, 32, 64, self._config.max_batch})
        return {n: n * self._speed.per_call(n) for n in sizes if n <= self._config.max_batch}

    def submit(self, call: LiveCall) -> None:
        self._core.add(self._now(), TimedCall(number=call.number, request=call.request))
        self._settle()

    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        self._core.abort(self._now(), call.number, reason, moved_to)
        self._settle()

    async def pause(self, mode: PauseMode) -> None:
        if mode is PauseMode.retract:
            self._core.retract_all(self._now())
        self._core.set_paused(self._now(), True)
        if mode is PauseMode.abort:
            for call in self.book.live():
                self._core.abort(self._now(), call.number, "aborted by /pause_generation")
        self._settle()

    async def resume(self) -> None:
        self._core.set_paused(self._now(), False)
        self._settle()

    async def flush_cache(self) -> bool:
        return self._core.flush_cache()

    async def relabel(self, version: str) -> None:
        try:
            await self.update_weights(Version.parse(version))
        except ValueError:
            raise BadRequest(f"new_version={version!r}: write it as lineage.step, e.g. 0.3") from None

    def version_text(self) -> str:
        return str(self._core.version)

    def loads(self) -> Loads:
        core = self._core
        return Loads(
            num_running=core.num_admitted,
            num_waiting=core.num_live - core.num_admitted,
            num_used_tokens=core.num_used_tokens,
            num_total_tokens=self._config.kv_tokens,
        )

    def facts(self) -> dict[str, Any]:
        return {"engine": "timed", "page_size": self._config.page_size, "is_asleep": not self.is_awake, "counters": self.counters()}

    def failure(self) -> str | None:
        return None

    def _settle(self) -> None:
        """Hand out what the core made, and be back when it has more."""
        pieces, self._core.out = self._core.out, []
        self.book.deliver(pieces)
        self._cancel()
        due = self._core.next_due()
        if due is not None:
            self._handle = self._timer(max(due - self._now(), 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._handle = None
        self._core.advance(self._now())
        self._settle()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
