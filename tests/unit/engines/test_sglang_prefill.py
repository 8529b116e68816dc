"""KV of one server in another one: two as one (prompts are computed by one of them, tokens by the other), and a storage of all."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from gyre_hpc.engines.backend import PauseMode
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.sglang.parts import NotAnswered, ServerLost
from gyre_hpc.engines.sglang.prefill import Peer
from tests.fakes.sglang_bench import VERSIONS, Bench, bench, check_truth
from tests.fakes.sglang_bench import run as run_alone

PEER_PORT = 8998


@dataclass(kw_only=True)
class Pair:
    prefill: Bench
    decode: Bench

    async def settle(self) -> None:
        await self.prefill.settle()
        await self.decode.settle()

    def prompts(self) -> list[str]:
        """Rids that the prefilling server has."""
        return list(self.prefill.upstream.requests)

    def compute_prompts(self) -> None:
        """All that the prefilling server has: it draws the first token, and ends the request there."""
        for request in self.prefill.upstream.requests.values():
            request.params["max_new_tokens"] = 1
        self.prefill.upstream.compute(1)
        self.prefill.upstream.speak()


def run(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bench() as prefill:
            peer = Peer(host="10.0.0.7", bootstrap_port=PEER_PORT, prompt=prefill.engine.prompt)
            async with bench(peer=peer) as decode:
                await test(Pair(prefill=prefill, decode=decode))

    asyncio.run(main())


def words(call: LiveCall) -> str:
    assert call.error is not None and call.status == 500, "another cell may do better"
    return call.error


def test_a_request_goes_to_both_under_a_room_of_its_own() -> None:
    async def test(pair: Pair) -> None:
        for number in range(3):
            pair.decode.ask(8, prompt=(number,))
        await pair.settle()
        sides = [pair.prefill.upstream.requests, pair.decode.upstream.requests]
        assert [[request.prompt for request in side.values()] for side in sides] == [[[0], [1], [2]]] * 2
        bodies = [[request.body for request in side.values()] for side in sides]
        assert bodies[0] == bodies[1]
        assert {(body["bootstrap_host"], body["bootstrap_port"]) for body in bodies[0]} == {("10.0.0.7", PEER_PORT)}
        assert len({body["bootstrap_room"] for body in bodies[0]}) == 3
        pair.compute_prompts()
        await pair.decode.finish()
        for call in pair.decode.calls:
            assert len(call.answer.ids) == 8
            check_truth(call)
        assert not pair.prompts()

    run(test)


def test_no_token_is_told_before_it_is_known_whose_weights_computed_the_prompt() -> None:
    async def test(pair: Pair) -> None:
        call = pair.decode.ask(8)
        await pair.settle()
        pair.decode.upstream.compute(3)
        pair.decode.upstream.speak()
        await pair.settle()
        assert call.answer.ids == []
        pair.compute_prompts()
        await pair.settle()
        assert len(call.answer.ids) == 3

    run(test)


def test_kv_of_other_weights_is_not_sent_at_all() -> None:
    """The decoding server would keep it in its cache, under the label of its own."""

    async def test(pair: Pair) -> None:
        await pair.decode.engine.update_weights(VERSIONS[1])
        call = await asked(pair)
        assert "has weights 0.0, not 0.1" in words(call)
        assert not pair.prompts() and not pair.decode.upstream.requests
        await pair.prefill.engine.update_weights(VERSIONS[1])
        again = await asked(pair)
        pair.compute_prompts()
        await pair.decode.finish()
        check_truth(again)

    run(test)


def test_kv_of_other_weights_that_came_all_the_same_is_the_end_of_both() -> None:
    async def test(pair: Pair) -> None:
        call = await asked(pair)
        pair.prefill.upstream.version = "0.9"
        pair.decode.upstream.compute(3)
        pair.decode.upstream.speak()
        pair.compute_prompts()
        await pair.settle()
        assert call.answer.ids == []
        for side in (pair.prefill, pair.decode):
            assert "version '0.9'" in (side.engine.failure() or "")

    run(test)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_prefilling_server_that_dies_costs_the_requests_it_had_and_no_more(is_known: bool) -> None:
    async def test(pair: Pair) -> None:
        decodes = pair.decode.ask(20)
        await pair.settle()
        pair.compute_prompts()
        pair.decode.upstream.compute(2)
        pair.decode.upstream.speak()
        pair.decode.upstream.lets_in = is_known
        waits = pair.decode.ask(20, prompt=(9,))
        await pair.settle()
        pair.prefill.upstream.die()
        await pair.settle()
        pair.decode.upstream.lets_in = True
        pair.decode.upstream.let_in()
        await pair.settle()
        assert "the server that prefills is lost" in words(waits)
        assert pair.prefill.engine.failure() is not None and pair.decode.engine.failure() is None
        assert "stands still" in words(await asked(pair))
        await pair.decode.finish()
        assert len(decodes.answer.ids) == 20
        check_truth(decodes)

    run(test)


async def asked(pair: Pair) -> LiveCall:
    call = pair.decode.ask(4)
    await pair.settle()
    return call


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        ({"type": "abort", "message": "Prefill bootstrap failed", "status_code": 500}, 500),
        ({"type": "abort", "message": "Aborted", "status_code": None}, 500),
        ({"type": "abort", "message": "too long", "status_code": 400}, 400),
    ],
)
def test_a_prompt_that_fails_there_is_an_error_of_its_kind_here(finish: dict[str, object], status: int) -> None:
    async def test(pair: Pair) -> None:
        call = await asked(pair)
        pair.prefill.upstream.end("", finish)
        await pair.settle()
        assert call.status == status and str(finish["message"]) in (call.error or "")
        assert not pair.decode.upstream.requests and pair.decode.engine.failure() is None

    run(test)


def test_a_transfer_that_breaks_off_is_for_another_cell_to_try() -> None:
    async def test(pair: Pair) -> None:
        call = await asked(pair)
        pair.decode.upstream.end("", {"type": "abort", "message": "KVTransferError: Lost connection", "status_code": 500})
        await pair.settle()
        assert "Lost connection" in words(call)
        assert not pair.prompts() and pair.decode.engine.failure() is None

    run(test)


def test_an_abort_reaches_both() -> None:
    async def test(pair: Pair) -> None:
        call = await asked(pair)
        assert pair.prompts()
        pair.decode.engine.abort(call, "enough")
        await pair.settle()
        assert call.answer.finish is not None and call.answer.finish["message"] == "enough"
        assert not pair.prompts() and not pair.decode.upstream.requests

    run(test)


def test_a_prefilling_server_stands_still_for_its_own_changes() -> None:
    async def test(pair: Pair) -> None:
        call = await asked(pair)
        await pair.prefill.engine.pause(PauseMode.in_place)
        await pair.settle()
        assert not pair.prompts() and "told to stand still" in words(call)
        assert "stands still: pause" in words(await asked(pair))
        await pair.prefill.engine.resume()
        good = await asked(pair)
        pair.compute_prompts()
        await pair.decode.finish()
        check_truth(good)
        late = await asked(pair)
        await pair.prefill.engine.sleep()
        await pair.settle()
        assert not pair.prompts() and late.error is not None

    run(test)


def test_a_prefilling_server_is_idle_before_it_gets_other_weights() -> None:
    """The prompts that an update ends were ended by closing their connections."""

    async def test(pair: Pair) -> None:
        call, server = await asked(pair), pair.prefill
        await server.engine.update_weights(VERSIONS[1])
        await pair.settle()
        assert "told to stand still: update" in words(call)
        assert server.upstream.log[-2:] == ["flush", "weights 0.1 and flush"]
        await server.engine.update_weights(VERSIONS[2])
        assert server.upstream.log[-2:] == ["weights 0.1 and flush", "weights 0.2 and flush"], "nobody was asked for since"

    run(test)


def test_a_prefilling_server_that_does_not_become_idle_is_lost() -> None:
    async def test(pair: Pair) -> None:
        async def busy(deadline_s: float) -> bool:
            return False

        await asked(pair)
        pair.prefill.upstream.flush = busy  # type: ignore[method-assign]
        with pytest.raises(ServerLost, match="not idle"):
            await pair.prefill.engine.update_weights(VERSIONS[1])
        assert pair.prefill.upstream.version == "0.0" and "not idle" in (pair.prefill.engine.failure() or "")

    run(test)


def test_a_server_alone_takes_no_prompts_while_it_sleeps() -> None:
    async def test(one: Bench) -> None:
        await one.engine.sleep()
        with pytest.raises(NotAnswered, match="asleep"):
            await one.engine.prompt({"rid": "x.", "input_ids": [1], "sampling_params": {"max_new_tokens": 1}}, "0.0")

    run_alone(test)


def test_kv_in_a_storage_is_found_under_the_version_that_computed_it_alone() -> None:
    async def test(one: Bench) -> None:
        keys = []
        for step in (0, 1):
            await one.engine.update_weights(VERSIONS[step])
            one.ask(4)
            await one.settle()
            keys += [request.body["extra_key"] for request in one.upstream.requests.values()]
            await one.finish()
        assert keys == ["run/0.0", "run/0.1"]

    run_alone(test, namespace="run")
