"""An engine whose answers come from a function: warm-start demonstrations and gateway tests. No torch, no time.

`answer(prompt ids, key)` gives the whole output of a call. A continuation (position n > 0) has the first n output tokens
at the end of its prompt: the function is asked with the original prompt, and its answer goes on from n. So a moved call
gets what it would have got. Log-probs are 0.0: a scripted token is certain.

With `held=True` nothing is put out until `release`: a test decides how far calls get.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gyre_hpc.engines.answer import Piece, aborted, reached_length, stopped
from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.request import BadRequest, Request
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory

ScriptedAnswer = Callable[[tuple[int, ...], bytes], Sequence[int]]
"""(prompt ids, key) -> output ids; the last is normally a stop token."""


class ScriptedEngine(ServedEngine):
    """Answers at once, or as far as released."""

    capabilities = EngineCapabilities(kv="none", sampling="counter")

    def __init__(
        self,
        answer: ScriptedAnswer,
        *,
        run_token: str,
        host: str,
        port: int = 0,
        max_context: int = 1 << 20,
        vocab_size: int | None = None,
        held: bool = False,
    ) -> None:
        super().__init__(run_token=run_token, host=host, port=port, max_context=max_context, vocab_size=vocab_size)
        self._script, self._is_held = answer, held
        self._is_paused = False
        self._version = Version()
        self._left: dict[int, tuple[LiveCall, list[int]]] = {}
        self._counters = {"sampled": 0, "prefilled": 0, "cached": 0, "decode_steps": 0}

    async def sleep(self) -> list[RankMemory]:
        assert not len(self.book), f"sleep with {len(self.book)} live requests"
        return [RankMemory(rank=0, free=0, used=0)]

    async def wake(self, version: Version) -> list[RankMemory]:
        self._version, self._is_paused = version, False
        return [RankMemory(rank=0, free=0, used=0)]

    async def update_weights(self, version: Version) -> None:
        self._version = version

    def counters(self) -> dict[str, int]:
        return dict(self._counters)

    def curve(self) -> dict[int, float]:
        return {}

    def release(self, num_tokens: int) -> None:
        """Put out up to `num_tokens` more tokens of every live call."""
        for call, left in list(self._left.values()):
            self._put_out(call, left[:num_tokens])

    def submit(self, call: LiveCall) -> None:
        request = call.request
        self._left[call.number] = (call, _remaining(self._script, request))
        self._counters["prefilled"] += len(request.input_ids)
        self._flow()

    def abort(self, call: LiveCall, reason: str) -> None:
        if self._left.pop(call.number, None) is not None:
            self.book.deliver([self._piece(call, [], aborted(reason))])

    async def pause(self, mode: PauseMode) -> None:
        self._is_paused = True
        if mode is PauseMode.abort:
            for call in self.book.live():
                self.abort(call, "aborted by /pause_generation")

    async def resume(self) -> None:
        self._is_paused = False
        self._flow()

    async def flush_cache(self) -> bool:
        return not self._left

    async def relabel(self, version: str) -> None:
        try:
            self._version = Version.parse(version)
        except ValueError:
            raise BadRequest(f"new_version={version!r}: write it as lineage.step, e.g. 0.3") from None

    def version_text(self) -> str:
        return str(self._version)

    def loads(self) -> Loads:
        return Loads(num_running=len(self._left), num_waiting=0, num_used_tokens=0, num_total_tokens=0)

    def facts(self) -> dict[str, Any]:
        return {"engine": "scripted", "counters": self.counters()}

    def failure(self) -> str | None:
        return None

    def _flow(self) -> None:
        """Put out everything, unless held or paused."""
        if not self._is_held and not self._is_paused:
            for call, left in list(self._left.values()):
                self._put_out(call, left)

    def _put_out(self, call: LiveCall, ids: Sequence[int]) -> None:
        left = self._left[call.number][1]
        shown, left[:] = list(ids), left[len(ids) :]
        total = len(call.answer.ids) + len(shown)
        finish = None
        if not left:
            is_stop = bool(shown) and shown[-1] in call.request.stop_ids
            finish = stopped(shown[-1]) if is_stop else reached_length(total)
            del self._left[call.number]
        self._counters["sampled"] += len(shown)
        self.book.deliver([self._piece(call, shown, finish)])

    def _piece(self, call: LiveCall, ids: list[int], finish: dict[str, Any] | None) -> Piece:
        start, version = len(call.answer.ids), str(self._version)
        return Piece(
            number=call.number,
            start=start,
            ids=ids,
            logprobs=[0.0] * len(ids),
            spans=((version, start, start + len(ids)),) if ids else (),
            oldest_kv=version,
            cached=0,
            num_retractions=0,
            finish=finish,
        )


def _remaining(script: ScriptedAnswer, request: Request) -> list[int]:
    """Output tokens from `position` on, up to the first stop token and the length asked for."""
    prompt = request.input_ids[: len(request.input_ids) - request.position]
    ids = list(script(prompt, request.key))[request.position :][: request.max_new_tokens]
    for index, token in enumerate(ids):
        if token in request.stop_ids:
            return ids[: index + 1]
    return ids
