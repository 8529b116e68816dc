"""kill -9 of either end of a transfer, between two of its pieces (faults.md C9, C10): what came stays, the rest is prefilled."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gyre_hpc.cell import kv_transfer
from tests.fakes.block_ends import missing
from tests.fakes.engine_rig import until
from tests.fakes.kv_cells import KvCell, kv_cells
from tests.fakes.live_run import REPOSITORY
from tests.fakes.required import need

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6] * 50
"""400 tokens: 50 full pages."""
CALL = "train-0-0-0/1"
PAGE_BYTES = 2 * 2 * 2 * 8 * 8 * 4
"""Layers, keys and values, heads, head size, tokens, bytes: of engine_rig's model."""
PIECE = 8
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "c10d", "mooncake"])


class Peer:
    """The other end."""

    def __init__(self, transport: str) -> None:
        argv = [sys.executable, "-m", "tests.fakes.processes.kv_peer", transport, str(PIECE * PAGE_BYTES)]
        self._process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addresses = self.hear()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        while not (line := self._process.stdout.readline()).startswith("{"):
            # mooncake's library speaks here too.
            assert line, "the peer is gone"
        return json.loads(line)

    async def ask(self, **told: Any) -> Any:
        self.tell(**told)
        return await asyncio.to_thread(self.hear)

    def tell(self, **told: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(told), file=self._process.stdin, flush=True)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


def run(test: Callable[[KvCell, Peer], Awaitable[None]], transport: str) -> None:
    need(transport, missing(transport))
    peer = Peer(transport)
    try:

        async def main() -> None:
            async with kv_cells("embedded", transport, configs=({},), addresses={"peer": peer.addresses["kv"]}) as (cell,):
                await test(cell, peer)

        asyncio.run(main())
    finally:
        peer.close()


class Nth:
    """Calls `act` the n-th time it is called."""

    def __init__(self, n: int, act: Callable[[], None]) -> None:
        self.count, self._n, self._act = 0, n, act

    def __call__(self) -> None:
        self.count += 1
        if self.count == self._n:
            self._act()


@TRANSPORTS
def test_a_killed_source_leaves_what_came_and_no_reservation(transport: str) -> None:
    async def test(here: KvCell, peer: Peer) -> None:
        told = await peer.ask(generate=PROMPT, num_tokens=1, call=CALL)
        free = here.kv.free_tokens()
        here.before_fetch = Nth(3, peer.kill)
        assert here.client._address_of(here.name)
        peer.tell(give_to=here.client._address_of(here.name), call=CALL, deadline_s=4.0)
        await until(lambda: here.before_fetch.count >= 3)
        await until(lambda: here.kv.num_reservations() == 0)
        assert here.kv.free_tokens() == free
        answer = await here.generate([*PROMPT, *told["output_ids"]], 30, "train-0-0-0/2")
        assert answer["meta_info"]["cached_tokens"] == 2 * PIECE * 8
        await here.serving.engine.flush_cache()
        assert (await here.generate([*PROMPT, *told["output_ids"]], 30, ""))["output_ids"] == answer["output_ids"]

    run(test, transport)


@TRANSPORTS
def test_a_killed_target_costs_its_source_nothing(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(here: KvCell, peer: Peer) -> None:
        for name in ("FIRST_BYTES", "LARGEST_BYTES"):
            monkeypatch.setattr(kv_transfer, name, PIECE * PAGE_BYTES)
        await here.generate(PROMPT, 1, CALL)
        here.before_offer = Nth(4, peer.kill)
        result = await here.give(CALL, to="peer", deadline_s=4.0)
        assert 2 * PIECE * 8 <= result.num_tokens <= 4 * PIECE * 8 and result.trouble
        assert [one.cell for one in result.moved] == ["peer"]
        assert await here.quiet() == 0 and here.kv.num_leases() == 0
        answer = await here.generate(PROMPT, 30, "train-0-0-0/2")
        assert answer["meta_info"]["cached_tokens"] == 392
        here.serving.engine.close_admission(2)
        await here.actions.before_sleep(10.0)
        await here.serving.engine.sleep()

    run(test, transport)
