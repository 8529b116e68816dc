"""The embedded engine: asyncio side. Weights come from the cell's snapshot store, computing happens in a Worker."""

import asyncio
import logging
from typing import Any

from gyre_hpc.config.schema import EngineConfig
from gyre_hpc.engines.answer import Piece
from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.embedded import jobs
from gyre_hpc.engines.embedded.build import new_core, new_forward
from gyre_hpc.engines.embedded.kv import EmbeddedKV, layout_of
from gyre_hpc.engines.embedded.turns import LeaderTurns
from gyre_hpc.engines.embedded.worker import Worker
from gyre_hpc.engines.request import BadRequest, Request
from gyre_hpc.engines.scripted import ScriptedAnswer, prescribed_ids
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.stopping import Decode
from gyre_hpc.errors import UserError
from gyre_hpc.models.qwen3_config import Qwen3Config
from gyre_hpc.models.tensor_ranks import TensorRanks
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory
from gyre_hpc.transport.base import SnapshotStore

_LOG = logging.getLogger(__name__)


class EmbeddedEngine(ServedEngine):
    """Raises UserError when the KV memory cannot hold one full context.

    decode: looks for stop strings. script: says which tokens come instead of a draw; everything else is computed as ever,
    and log-probs are the model's. moves_kv: pages go to other cells, and come from them.
    ranks: this rank leads others that hold the model with it (EngineFollower); they are started first.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        model: Qwen3Config,
        store: SnapshotStore,
        run_token: str,
        host: str,
        port: int = 0,
        rank: int = 0,
        stream_tokens: int = 16,
        stream_s: float = 0.25,
        decode: Decode | None = None,
        script: ScriptedAnswer | None = None,
        moves_kv: bool = False,
        ranks: TensorRanks | None = None,
    ) -> None:
        super().__init__(
            run_token=run_token, host=host, port=port, max_context=model.max_context, vocab_size=model.vocab_size, decode=decode
        )
        needed = -(-model.max_context // config.page_size) * config.page_size
        if config.kv_tokens < needed:
            raise UserError("engine.kv_tokens", config.kv_tokens, f"make it at least {needed}: one call of the longest context")
        self._config, self._model, self._store, self._rank, self._script = config, model, store, rank, script
        forward = new_forward(config, model, ranks)
        self._core = new_core(config, forward, store.get, decode=decode, stream_tokens=stream_tokens, stream_s=stream_s)
        self.capabilities = EngineCapabilities(kv="pages" if moves_kv else "none", sampling="counter")
        if moves_kv:
            layout = layout_of(forward.model, page_size=config.page_size, num_ranks=ranks.size if ranks else 1, keep_kv=config.keep_kv)
            self.kv = EmbeddedKV(self._ask, self._core, self.book, layout)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._updating = asyncio.Lock()
        turns = None if ranks is None else LeaderTurns(ranks)
        self._worker = Worker(self._core, turns=turns, deliver=self._deliver, on_failure=self._on_failure)

    async def start(self) -> str:
        self._loop = asyncio.get_running_loop()
        self._worker.start()
        return await super().start()

    async def close(self) -> None:
        await super().close()
        await asyncio.to_thread(self._worker.close)

    async def sleep(self) -> list[RankMemory]:
        assert not len(self.book), f"sleep with {len(self.book)} live requests"
        return self._memory(await self._ask(jobs.Sleep()))

    async def wake(self, version: Version) -> list[RankMemory]:
        async with self._updating:
            await self._ask(jobs.Prepare(version))
            return self._memory(await self._ask(jobs.Wake(version)))

    async def update_weights(self, version: Version) -> None:
        async with self._updating:
            await self._ask(jobs.Prepare(version))
            await self._ask(jobs.Update(version))

    def counters(self) -> dict[str, int]:
        return dict(self._core.counters)

    def curve(self) -> dict[int, float]:
        return {batch: batch / seconds for batch, seconds in dict(self._core.step_s).items() if seconds > 0}

    def submit(self, call: LiveCall) -> None:
        prescribed = None if self._script is None else self._prescribed(self._script, call.request)
        self._worker.ask(jobs.Add(call.number, call.request, prescribed))

    def _prescribed(self, script: ScriptedAnswer, request: Request) -> list[int]:
        ids = prescribed_ids(script, request)
        if ids and not 0 <= min(ids) <= max(ids) < self._model.vocab_size:
            raise ValueError(f"the script gave ids {min(ids)}..{max(ids)}; the model has 0..{self._model.vocab_size - 1}")
        return ids

    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        self._worker.ask(jobs.Abort(call.number, reason, moved_to))

    async def pause(self, mode: PauseMode) -> None:
        await self._ask(jobs.Pause(mode is PauseMode.retract))
        if mode is PauseMode.abort:
            for call in self.book.live():
                self.abort(call, "aborted by /pause_generation")
            await self._ask(jobs.Nothing())

    async def resume(self) -> None:
        await self._ask(jobs.Resume())

    async def flush_cache(self) -> bool:
        return bool(await self._ask(jobs.FlushCache()))

    async def relabel(self, version: str) -> None:
        try:
            await self.update_weights(Version.parse(version))
        except (KeyError, ValueError):
            raise BadRequest(f"new_version={version!r}: the snapshot store holds {[str(v) for v in self._store.versions()]}") from None

    def version_text(self) -> str:
        return str(self._core.version)

    def loads(self) -> Loads:
        core, memory = self._core, self._core.memory
        num_waiting = core.num_waiting
        return Loads(
            num_running=max(core.num_live - num_waiting, 0),
            num_waiting=num_waiting,
            num_used_tokens=memory.table.num_held * memory.page_size if memory else 0,
            num_total_tokens=self._config.kv_tokens,
        )

    def facts(self) -> dict[str, Any]:
        c = self._config
        return {
            "engine": "embedded",
            "page_size": c.page_size,
            "max_running_requests": c.max_batch,
            "chunked_prefill_size": c.prefill_chunk,
            "is_asleep": self._core.memory is None,
            "counters": self.counters(),
        }

    def failure(self) -> str | None:
        return None if self._worker.failure is None else f"the engine's compute thread failed: {self._worker.failure!r}"

    def _memory(self, figures: list[tuple[int, int]]) -> list[RankMemory]:
        """Of (free, used) of this rank and those that follow it."""
        return [RankMemory(rank=rank, free=free, used=used) for rank, (free, used) in enumerate(figures, start=self._rank)]

    async def _ask(self, job: jobs.Job) -> Any:
        return await asyncio.wrap_future(self._worker.ask(job))

    def _deliver(self, pieces: list[Piece]) -> None:
        """From the compute thread to the loop."""
        if not pieces:
            return
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.book.deliver, pieces)

    def _on_failure(self, error: BaseException) -> None:
        _LOG.error("the engine's compute thread failed", exc_info=error)
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.book.fail, f"the engine's compute thread failed: {error!r}")
