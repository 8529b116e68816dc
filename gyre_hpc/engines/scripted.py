"""An engine whose answers come from a function: warm-start demonstrations and gateway tests. No torch, no time.
(The embedded engine takes such a function too, `script=`, and computes besides.)

`answer(prompt ids, key)` gives the whole output of a call. A continuation (position n > 0) has the first n output tokens
at the end of its prompt: the function is asked with the original prompt, and its answer goes on from n. So a moved call
gets what it would have got. Log-probs are 0.0: a scripted token is certain.

With `held=True` nothing is put out until `release`: a test decides how far calls get.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gyre_hpc.engines.answer import Piece, aborted
from gyre_hpc.engines.backend import Loads, PauseMode
from gyre_hpc.engines.base import EngineCapabilities
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.ids_digest import IdsDigest
from gyre_hpc.engines.request import BadRequest, Request
from gyre_hpc.engines.served import ServedEngine
from gyre_hpc.engines.stopping import Decode, Stopping
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import RankMemory

ScriptedAnswer = Callable[[tuple[int, ...], bytes], Sequence[int]]
"""(prompt ids, key) -> output ids; the last is normally a stop token."""


def prescribed_ids(script: ScriptedAnswer, request: Request) -> list[int]:
    """What the script says from the request's position on, at most the length asked for."""
    prompt = request.input_ids[: len(request.input_ids) - request.position]
    return list(script(prompt, request.key))[request.position :][: request.max_new_tokens]


@dataclass(kw_only=True, slots=True)
class _Part:
    """A call's answer that is not put out yet."""

    call: LiveCall
    left: list[int]
    finish: dict[str, Any]
    """Once all of `left` is out."""
    digest: IdsDigest


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
        decode: Decode | None = None,
    ) -> None:
        super().__init__(run_token=run_token, host=host, port=port, max_context=max_context, vocab_size=vocab_size, decode=decode)
        self._script, self._is_held = answer, held
        self._is_paused = False
        self._version = Version()
        self._parts: dict[int, _Part] = {}
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

    def release(self, num_tokens: int, rid: str = "") -> None:
        """Put out up to `num_tokens` more tokens of every live call, or of the one named `rid`."""
        for part in list(self._parts.values()):
            if rid in ("", part.call.request.rid):
                self._put_out(part, num_tokens)

    def submit(self, call: LiveCall) -> None:
        request = call.request
        left, finish = _cut(prescribed_ids(self._script, request), request, self.decode)
        self._parts[call.number] = _Part(call=call, left=left, finish=finish, digest=IdsDigest(request.input_ids))
        self._counters["prefilled"] += len(request.input_ids)
        self._flow()

    def abort(self, call: LiveCall, reason: str, moved_to: str = "") -> None:
        part = self._parts.pop(call.number, None)
        if part is not None:
            self.book.deliver([self._piece(part, [], aborted(reason))])

    async def pause(self, mode: PauseMode) -> None:
        self._is_paused = True
        if mode is PauseMode.abort:
            for call in self.book.live():
                self.abort(call, "aborted by /pause_generation")

    async def resume(self) -> None:
        self._is_paused = False
        self._flow()

    async def flush_cache(self) -> bool:
        return not self._parts

    async def relabel(self, version: str) -> None:
        try:
            self._version = Version.parse(version)
        except ValueError:
            raise BadRequest(f"new_version={version!r}: write it as lineage.step, e.g. 0.3") from None

    def version_text(self) -> str:
        return str(self._version)

    def loads(self) -> Loads:
        return Loads(num_running=len(self._parts), num_waiting=0, num_used_tokens=0, num_total_tokens=0)

    def facts(self) -> dict[str, Any]:
        return {"engine": "scripted", "counters": self.counters()}

    def failure(self) -> str | None:
        return None

    def _flow(self) -> None:
        """Put out everything, unless held or paused."""
        if not self._is_held and not self._is_paused:
            for part in list(self._parts.values()):
                self._put_out(part, len(part.left))

    def _put_out(self, part: _Part, num_tokens: int) -> None:
        shown, part.left = part.left[:num_tokens], part.left[num_tokens:]
        finish = None
        if not part.left:
            finish = part.finish
            del self._parts[part.call.number]
        self._counters["sampled"] += len(shown)
        self.book.deliver([self._piece(part, shown, finish)])

    def _piece(self, part: _Part, ids: list[int], finish: dict[str, Any] | None) -> Piece:
        start, version = len(part.call.answer.ids), str(self._version)
        part.digest.update(ids)
        return Piece(
            number=part.call.number,
            start=start,
            ids=ids,
            logprobs=[0.0] * len(ids),
            spans=((version, start, start + len(ids)),) if ids else (),
            oldest_kv=version,
            cached=0,
            num_retractions=0,
            finish=finish,
            digest=part.digest.hexdigest() if finish is not None else "",
        )


def _cut(ids: list[int], request: Request, decode: Decode | None) -> tuple[list[int], dict[str, Any]]:
    """The prescribed ids up to the one that ends the answer, and how it ends."""
    stopping = Stopping(request, decode, longest=len(ids))
    finish = stopping.at_once()
    if finish is not None:
        return [], finish
    for place, token in enumerate(ids):
        finish = stopping.after(token, place + 1)
        if finish is not None:
            return ids[: place + 1], finish
    raise AssertionError("the last prescribed token ends the answer")
