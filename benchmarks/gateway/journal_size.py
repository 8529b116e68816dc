"""One execution of 700 calls and 700,000 new tokens through a shard: what its journal weighs, how long it takes to become a tree.

Every 70 calls the conversation begins anew, as after a compaction.
"""

import asyncio
import time
from pathlib import Path

from benchmarks.gateway.bodies import Conversation
from benchmarks.gateway.chat_setup import chars_for
from benchmarks.gateway.client import connect
from benchmarks.gateway.goals import Figures
from benchmarks.gateway.plan import Plan
from benchmarks.gateway.targets import GyreGateway, Stub
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.segment import read_records
from gyre_hpc.trajectory.tree import CallTree

CALLS, TOKENS, PER_CONVERSATION = 700, 700_000, 70
EXECUTION = "train-0-0-0"


def measure(stub: Stub, plan: Plan, folder: Path, core: int, figures: Figures) -> None:
    stub.tell("route/long")
    later = chars_for(plan, TOKENS // CALLS - len(plan.answers["long"]) - 20)
    gateway = GyreGateway(stub, plan, folder / "journal", core)
    assert gateway.process is not None
    try:
        asyncio.run(_calls(gateway, plan, later))
    finally:
        gateway.process.close()
        stub.tell("route/now")
    _weigh(gateway, figures)


async def _calls(gateway: GyreGateway, plan: Plan, later: int) -> None:
    connection = await connect(gateway.port)
    for number in range(CALLS // PER_CONVERSATION):
        conversation = Conversation(f"part {number}", plan.long_text, size=2 * later, later=later)
        for _ in range(PER_CONVERSATION):
            status, body = await connection.ask(gateway.request(0, conversation.next()))
            assert status == 200, body[:300]
    connection.close()


def _weigh(gateway: GyreGateway, figures: Figures) -> None:
    paths = sorted(gateway.folder.journal.glob("*.gyj"))
    begin = time.perf_counter()
    fold = JournalFold()
    for path in paths:
        for record in read_records(path.read_bytes())[0]:
            fold.add(record)
    calls = fold.execution(EXECUTION)
    tree = CallTree(calls)
    ids = [tree.full_ids(leaf) for leaf in tree.leaves]
    took = time.perf_counter() - begin
    prompt, output = sum(len(call.suffix_ids) for call in calls), sum(len(call.output_ids) for call in calls)
    assert len(calls) == CALLS and sum(map(len, ids)) >= prompt + output
    size = sum(path.stat().st_size for path in paths)
    print(f"\njournal: {len(calls)} calls, {prompt} new prompt tokens, {output} output tokens, {len(tree.leaves)} leaves, {size} B")
    # The stricter of two readings: all bytes per new token, or what is no prompt id per output token.
    figures.put("journal_bytes_per_token", max(size / (prompt + output), (size - 4 * prompt) / output))
    figures.put("journal_bytes_per_new_token", size / (prompt + output))
    figures.put("tree_build_s_700k", took)
