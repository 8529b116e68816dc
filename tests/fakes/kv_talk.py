"""What the suites of moving KV have in common: prompts, kinds, and how answers are compared."""

import asyncio
import io
from typing import Any

import aiohttp
import pytest

from gyre_hpc.cell.kv_wire import encode
from tests.fakes.block_ends import missing
from tests.fakes.engine_rig import TOKEN
from tests.fakes.kv_cells import KvCell, kv_cells
from tests.fakes.required import need

PAGE = 8
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3] * 5
"""90 tokens: 11 full pages."""
OTHER = [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0, 4, 5] * 4
"""64 tokens: 8 full pages."""
BOUND = 1e-5
KINDS = pytest.mark.parametrize("kind", ["embedded", "timed"])
TRANSPORTS = pytest.mark.parametrize("transport", ["memory", "tcp", "c10d", "mooncake"])


def run(test: Any, kind: str, transport: str = "memory", **cells: Any) -> None:
    need(transport, missing(transport))

    async def main() -> None:
        async with kv_cells(kind, transport, **cells) as made:
            await test(*made)

    asyncio.run(main())


def logprobs(answer: Any) -> list[float]:
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


def same(one: Any, other: Any, skip: int = 0) -> None:
    """Answers agree; the other one has `skip` tokens more in front."""
    assert one["output_ids"] == other["output_ids"][skip:]
    assert logprobs(one) == pytest.approx(logprobs(other)[skip:], abs=BOUND)


def cached(answer: Any) -> int:
    return int(answer["meta_info"]["cached_tokens"])


async def post(cell: KvCell, path: str, body: Any) -> tuple[int, bytes]:
    url = cell.client._address_of(cell.name)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    data = body if isinstance(body, bytes) else encode(body)
    async with aiohttp.ClientSession(headers=headers) as session, session.post(f"{url}{path}", data=io.BytesIO(data)) as response:
        return response.status, await response.read()
