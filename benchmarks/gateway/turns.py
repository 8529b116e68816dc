"""A conversation of 400 turns and 200,000 tokens: what a late turn costs beside an early one.

CPU of the whole shard from its own process. The tokens' share from a shard in this process whose chat format is watched: whatever
the shard renders for a turn is counted, from scratch or not.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from benchmarks.gateway.bodies import Conversation
from benchmarks.gateway.chat_setup import chars_for
from benchmarks.gateway.client import connect
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.plan import Plan
from benchmarks.gateway.targets import GyreGateway, Stub, write_run_folder
from gyre_hpc.chat.hf_format import HfFormat
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.stored import load_config
from gyre_hpc.gateway.run import Gateway
from gyre_hpc.shell.arguments import Birth

TURNS, TOKENS = 400, 200_000
_AROUND = 10
"""Turns before and after the fourth and the four-hundredth that are measured with them."""
_MARKS = 20
"""Tokens of a turn that are no text: marks, roles."""


def measure(stub: Stub, plan: Plan, folder: Path, core: int, figures: Figures) -> None:
    stub.tell("route/now")
    later = chars_for(plan, TOKENS // TURNS - len(plan.answers["now"]) - _MARKS)
    gateway = GyreGateway(stub, plan, folder / "turns", core)
    assert gateway.process is not None
    try:
        early, late, tokens = asyncio.run(_cpu(gateway, plan, later))
    finally:
        gateway.process.close()
    figures.put("context_tokens_turn400", tokens)
    figures.put("cpu_ms_turn4", early)
    figures.put("cpu_ms_turn400_200k", late)
    spent = asyncio.run(_rendered(stub, plan, folder / "watched", later))
    fourth, last = (statistics.median(spent[at - 3 : at + 2]) for at in (4, TURNS))
    figures.put("tokenise_us_per_token_turn4", 1e6 * fourth)
    figures.put("tokenise_us_per_token_turn400", 1e6 * last)
    figures.put("tokenise_turn400_vs_turn4", last / fourth)


def _conversation(plan: Plan, later: int) -> Conversation:
    return Conversation("of many turns", plan.text, size=400, later=later)


async def _cpu(gateway: GyreGateway, plan: Plan, later: int) -> tuple[float, float, int]:
    """CPU milliseconds of one turn (around the fourth, around the last), and the prompt tokens of the last."""
    assert gateway.process is not None
    conversation, connection = _conversation(plan, later), await connect(gateway.port)
    marks: dict[int, float] = {}
    body = b"{}"
    for turn in range(1, TURNS + _AROUND + 1):
        status, body = await connection.ask(gateway.request(0, conversation.next()))
        assert status == 200, body[:300]
        if turn in (2, 8, TURNS - _AROUND, TURNS + _AROUND):
            # What is done after an answer belongs to its turn.
            await asyncio.sleep(0.05)
            marks[turn] = gateway.process.cpu_s()
    connection.close()
    early, late = (marks[8] - marks[2]) / 6, (marks[TURNS + _AROUND] - marks[TURNS - _AROUND]) / (2 * _AROUND)
    return 1e3 * early, 1e3 * late, int(orjson.loads(body)["usage"]["prompt_tokens"])


async def _rendered(stub: Stub, plan: Plan, folder: Path, later: int) -> list[float]:
    """Seconds of rendering and tokenising per new token, turn by turn, in a shard of this process."""
    spent: list[float] = []
    write_run_folder(RunFolder(folder), plan, {})
    config = load_config(RunFolder(folder).config)
    birth = Birth(
        name="gateway-0",
        attempt=1,
        incarnation=1,
        supervisor_url=stub.url,
        folder=RunFolder(folder),
        config=config,
        run_token=plan.run_token,
    )
    originals = HfFormat.render, HfFormat.render_suffix
    HfFormat.render, HfFormat.render_suffix = (_watched(original, spent) for original in originals)  # type: ignore[method-assign]
    gateway = Gateway(birth, lambda kind, fields: None, os.getpid())
    try:
        target = GyreGateway.__new__(GyreGateway)
        target._plan, target._tokens = plan, {}
        connection = await connect(int((await gateway.start()).rpartition(":")[2]))
        conversation, per_turn, before = _conversation(plan, later), list[float](), 0
        for _ in range(TURNS + 2):
            spent.clear()
            status, body = await connection.ask(target.request(0, conversation.next()))
            assert status == 200, body[:300]
            tokens = int(orjson.loads(body)["usage"]["prompt_tokens"])
            per_turn.append(sum(spent) / (tokens - before))
            before = tokens
        connection.close()
        return per_turn
    finally:
        HfFormat.render, HfFormat.render_suffix = originals  # type: ignore[method-assign]
        await gateway.close()


def _watched(original: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def watched(*args: Any, **more: Any) -> Any:
        begin = time.thread_time()
        try:
            return original(*args, **more)
        finally:
            spent.append(time.thread_time() - begin)

    return watched
