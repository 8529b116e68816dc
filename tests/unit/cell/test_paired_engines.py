"""The engines of a pair of cells as their processes have them: prompts go over a connection, and both come back to one another."""

import asyncio
from collections.abc import Awaitable, Callable

from gyre_hpc.cell.prompt_client import PromptClient
from gyre_hpc.cell.prompts import Prompts
from gyre_hpc.engines.calls import LiveCall
from gyre_hpc.engines.sglang.parts import Bootstrap
from gyre_hpc.ports import listen
from gyre_hpc.shell.inbox import make_app
from gyre_hpc.shell.serving import Serving
from tests.fakes.engine_rig import until
from tests.fakes.sglang_bench import VERSIONS, Bench, bench, check_truth

TOKEN = "secret"


class Pair:
    def __init__(self, prefill: Bench) -> None:
        self.prefill = prefill
        self.decode: Bench
        self.url: str | None = None
        self.client = PromptClient("cell-0", lambda cell: self.url, TOKEN)
        self._serving: Serving | None = None

    async def begin(self, port: int) -> None:
        """One life of the process that prefills."""
        app = make_app(TOKEN)
        Prompts(self.prefill.engine.prompt, Bootstrap(host="10.0.0.7", port=port)).add_to(app)
        self._serving = Serving(app, shutdown_s=0.1)
        self.url = await self._serving.start(listen("127.0.0.1"))

    async def end(self) -> None:
        if self._serving is not None:
            await self._serving.close()
        self._serving = None

    async def asked(self) -> LiveCall:
        """A call whose prompt the prefilling server has, and the decoding one waits for."""
        call = self.decode.ask(8)
        await until(lambda: bool(self.prefill.upstream.requests) and bool(self.decode.upstream.requests))
        return call

    async def compute(self) -> None:
        """All prompts; then everything else of all calls."""
        for request in self.prefill.upstream.requests.values():
            request.params["max_new_tokens"] = 1
        self.prefill.upstream.compute(1)
        self.prefill.upstream.speak()
        await until(lambda: not self.prefill.upstream.requests)
        await until(lambda: all(call.is_over for call in self.decode.calls), self._go_on)

    def _go_on(self) -> None:
        self.decode.upstream.compute(5)
        self.decode.upstream.speak()


def run(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bench() as prefill:
            pair = Pair(prefill)
            await pair.begin(4000)
            async with bench(peer=pair.client) as pair.decode:
                await test(pair)
            await pair.client.close()
            await pair.end()

    asyncio.run(main())


def words(call: LiveCall) -> str:
    assert call.error is not None and call.status == 500, "another cell may do better"
    return call.error


def test_a_request_goes_to_both_servers() -> None:
    async def test(pair: Pair) -> None:
        call = await pair.asked()
        (theirs,), (ours,) = pair.prefill.upstream.requests.values(), pair.decode.upstream.requests.values()
        assert theirs.body == ours.body
        assert (ours.body["bootstrap_host"], ours.body["bootstrap_port"]) == ("10.0.0.7", 4000)
        await pair.compute()
        check_truth(call)
        assert len(call.answer.ids) == 8

    run(test)


def test_a_call_that_ends_ends_its_prompt_in_the_other_process() -> None:
    async def test(pair: Pair) -> None:
        call = await pair.asked()
        pair.decode.engine.abort(call, "nobody wants it")
        await until(lambda: call.is_over and not pair.prefill.upstream.requests and not pair.decode.upstream.requests)
        assert pair.decode.engine.failure() is None and pair.prefill.engine.failure() is None

    run(test)


def test_a_process_that_dies_costs_the_prompts_it_had_until_the_next_one_is_there() -> None:
    async def test(pair: Pair) -> None:
        call = await pair.asked()
        await pair.end()
        await until(lambda: call.is_over)
        assert "cell-0, which prefills" in words(call)
        again = pair.decode.ask(8)
        await until(lambda: again.is_over)
        assert "cell-0, which prefills" in words(again)
        await pair.begin(5000)
        third = await pair.asked()
        (ours,) = pair.decode.upstream.requests.values()
        assert ours.body["bootstrap_port"] == 5000
        await pair.compute()
        check_truth(third)
        assert pair.decode.engine.failure() is None

    run(test)


def test_other_weights_there_are_said_and_none_of_their_kv_is_sent() -> None:
    async def test(pair: Pair) -> None:
        await pair.decode.engine.update_weights(VERSIONS[1])
        call = pair.decode.ask(8)
        await until(lambda: call.is_over)
        assert "has weights 0.0, not 0.1" in words(call)
        assert not pair.prefill.upstream.requests
        await pair.prefill.engine.update_weights(VERSIONS[1])
        await pair.asked()
        await pair.compute()
        check_truth(pair.decode.calls[-1])

    run(test)


def test_a_prefilling_engine_that_goes_to_sleep_ends_its_prompts_at_once() -> None:
    async def test(pair: Pair) -> None:
        call = await pair.asked()
        await pair.prefill.engine.sleep()
        await until(lambda: call.is_over)
        assert "asleep" in words(call)
        assert pair.decode.engine.failure() is None

    run(test)
