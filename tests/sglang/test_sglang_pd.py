"""Prefill-decode disaggregation between two real SGLang servers on CPU: what one computed, the other goes on from.

float32: tokens and log-probs agree with transformers and with the training forward within 1e-4; controls miss by far more. One pair
goes through all of it, and the last thing that happens to it is the death of the prefilling server.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from gyre_hpc.engines.backend import PauseMode
from gyre_hpc.engines.sglang.process_table import ranks_below
from gyre_hpc.errors import CellLost
from gyre_hpc.gateway.engine_client import EngineClient
from gyre_hpc.machines.call.actions import EngineAttempt, Tokens
from gyre_hpc.models.checkpoint import save_checkpoint
from gyre_hpc.observability.process_tree import signal_quietly
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Sampling
from gyre_hpc.protocol.tensors import pack_ids, unpack_floats, unpack_ids
from tests.fakes.engine_rig import MODEL, PARAMS, TOKEN, V0, V1, full_forward_logprobs, until
from tests.sglang.oracle import Greedy, Oracle
from tests.sglang.pair import Pair, Side, need_mooncake, pair

pytestmark = pytest.mark.timeout(600)

PROMPT = [(11 * i * i + 5 * i + 3) % 64 for i in range(600)]
OTHER = [(7 * i * i + i) % 64 for i in range(900)]
BOUND = 1e-4
PAGE = 8


@dataclass(kw_only=True)
class Seen:
    """What became of the pair."""

    answers: dict[str, Greedy] = field(default_factory=dict)
    moved: list[float] = field(default_factory=list)
    """KV that the prefilling server has sent since its start [tokens]: after the first turn, after the second one."""
    errors: dict[str, str] = field(default_factory=dict)
    abort: str = ""
    were_idle: list[bool] = field(default_factory=list)
    """After the abort, prefilling and decoding server."""
    failure: str | None = None
    """Of the engine that decodes, in the end."""


class Call:
    """A call as the gateway has it from the engine that decodes."""

    def __init__(self, pair: Pair, prompt: list[int], num_tokens: int, name: str) -> None:
        self.prompt, self.ids, self.logprobs, self.error = prompt, list[int](), list[float](), ""
        attempt = EngineAttempt(
            call=f"e/{name}",
            cell="cell-1",
            url=pair.decode.url,
            term=1,
            version=Version(),
            prompt=(pack_ids(prompt),),
            max_new_tokens=num_tokens,
            sampling=Sampling(temperature=0.0, key="aa" * 16),
            position=0,
            stop_ids=(),
            deadline_s=300.0,
        )
        self._task = asyncio.create_task(self._run(name, attempt))

    async def over(self) -> "Call":
        await self._task
        return self

    def greedy(self) -> Greedy:
        return Greedy(prompt=self.prompt, ids=self.ids, logprobs=self.logprobs)

    async def _run(self, name: str, attempt: EngineAttempt) -> None:
        client = EngineClient(TOKEN)
        try:
            await client.attempt(name, attempt, self._take)
        except CellLost as error:
            self.error = str(error)
        finally:
            await client.close()

    def _take(self, tokens: Tokens) -> None:
        self.ids += unpack_ids(tokens.ids).tolist()
        self.logprobs += unpack_floats(tokens.logprobs).tolist()


def signal_scheduler(side: Side, number: signal.Signals) -> None:
    """The process that computes; the one that takes requests in goes on."""
    computing = [rank.pid for rank, title in ranks_below(side.engine.pids()[0]).items() if "schedul" in title]
    assert computing
    for pid in computing:
        os.kill(pid, number)


async def turns(here: Pair, seen: Seen) -> None:
    per_mib = (1 << 20) / (2 * MODEL.num_layers * MODEL.num_kv_heads * MODEL.head_dim * 4)
    seen.answers["first"] = first = (await Call(here, PROMPT, 24, "first").over()).greedy()
    seen.moved.append(await here.moved_mib() * per_mib)
    seen.answers["second"] = (await Call(here, PROMPT + first.ids + OTHER[:20], 24, "second").over()).greedy()
    seen.moved.append(await here.moved_mib() * per_mib)


async def new_weights(here: Pair, seen: Seen) -> None:
    """First where tokens come from, then where prompts are computed."""
    await here.decode.engine.update_weights(V1)
    seen.errors["mixed"] = (await Call(here, PROMPT, 8, "mixed").over()).error
    await here.prefill.engine.update_weights(V1)
    seen.answers["updated"] = (await Call(here, PROMPT, 24, "updated").over()).greedy()


async def abort(here: Pair, seen: Seen) -> None:
    """While the prompt is computed."""
    signal_scheduler(here.prefill, signal.SIGSTOP)
    call = asyncio.create_task(here.ask(OTHER, 8, "aborted"))
    await until(here.is_prefilling)
    await here.abort("aborted")
    _, answer = await call
    seen.abort = answer["meta_info"]["finish_reason"]["type"]
    signal_scheduler(here.prefill, signal.SIGCONT)
    seen.were_idle = [await side.client.flush(30.0) for side in (here.prefill, here.decode)]


async def death(here: Pair, seen: Seen) -> None:
    """Of the prefilling server, while it computes a prompt and the other one decodes."""
    decoding, kept = Call(here, PROMPT, 1200, "decoding"), Call(here, PROMPT, 1200, "kept")
    await until(lambda: bool(decoding.ids and kept.ids))
    signal_scheduler(here.prefill, signal.SIGSTOP)
    waiting = Call(here, OTHER, 8, "waiting")
    await until(here.is_prefilling)
    for pid in here.prefill.pids():
        signal_quietly(pid, signal.SIGKILL)  # the first one takes others along
    seen.errors["waiting"] = (await waiting.over()).error
    seen.errors["late"] = (await Call(here, PROMPT, 8, "late").over()).error
    # Each goes on from its tokens in a new request, whose prompt nobody computes.
    num_kept = len(kept.ids)
    await here.decode.engine.pause(PauseMode.retract)
    await here.decode.engine.resume()
    seen.errors["kept"] = (await kept.over()).error
    seen.answers["kept"] = kept.greedy()
    assert len(kept.ids) >= num_kept
    await decoding.over()
    here.decode.engine.close_admission(2)
    await here.decode.engine.sleep()
    seen.failure = here.decode.engine.failure()


async def scenario() -> Seen:
    seen = Seen()
    async with pair() as here:
        for step in (turns, new_weights, abort, death):
            await step(here, seen)
    return seen


@pytest.fixture(scope="module")
def seen() -> Seen:
    need_mooncake()
    return asyncio.run(scenario())


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Version], Oracle]:
    base = tmp_path_factory.mktemp("models")

    def of(version: Version) -> Oracle:
        save_checkpoint(base / str(version), MODEL, PARAMS[version])
        return Oracle(base / str(version))

    return of


@pytest.mark.parametrize(("name", "version"), [("first", V0), ("second", V0), ("updated", V1)])
def test_what_is_decoded_after_the_others_prompt_is_the_models(
    seen: Seen, oracle: Callable[[Version], Oracle], name: str, version: Version
) -> None:
    answer = seen.answers[name]
    assert len(answer.ids) == 24
    assert oracle(version).gap(answer) < BOUND
    assert oracle(version).gap(answer, changed=True) > 100 * BOUND, "KV of another prompt would show"
    assert oracle(V0 if version == V1 else V1).gap(answer) > 1000 * BOUND, "and of other weights"
    forward = full_forward_logprobs(version, answer.prompt + answer.ids, len(answer.prompt))
    assert (forward - torch.tensor(answer.logprobs)).abs().max() < BOUND


def test_only_what_the_decoding_server_does_not_have_is_sent(seen: Seen) -> None:
    first, second = seen.moved
    assert len(PROMPT) <= first < len(PROMPT) + PAGE
    assert 20 <= second - first < 20 + 2 * PAGE


def test_a_pair_of_different_weights_answers_nothing(seen: Seen) -> None:
    assert "has weights 0.0, not 0.1" in seen.errors["mixed"]


def test_an_abort_ends_the_request_at_both(seen: Seen) -> None:
    assert (seen.abort, seen.were_idle) == ("abort", [True, True])


def test_a_prefilling_server_that_dies_costs_calls_another_try_and_no_token(seen: Seen) -> None:
    assert "the server that prefills is lost" in seen.errors["waiting"]
    assert "stands still" in seen.errors["late"] and "stands still" in seen.errors["kept"]
    kept = seen.answers["kept"]
    assert kept.ids
    forward = full_forward_logprobs(V1, kept.prompt + kept.ids, len(kept.prompt))
    assert (forward - torch.tensor(kept.logprobs)).abs().max() < BOUND


def test_the_decoding_server_outlives_its_peer(seen: Seen) -> None:
    assert seen.failure is None
