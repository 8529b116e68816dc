"""After a restart: trees, identities, facts and counters from the journal. Open calls wait to be asked for again.

What the dead process had received and not yet journaled is drawn again from the same counters; how much that was nobody
knows, so each open call counts its largest possible interval as unreceived. What earlier attempts recorded lies ready for the lives
of executions that begin in this one; it counts nothing here.
"""

from collections.abc import Iterable
from typing import Any

from gyre_hpc.machines.base import Note, SetTimer
from gyre_hpc.machines.call.actions import Earlier
from gyre_hpc.machines.call.arrival import resume
from gyre_hpc.machines.call.ending import count_tool_calls
from gyre_hpc.machines.call.lives import take_over
from gyre_hpc.machines.call.node import ANSWERED, Node
from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.machines.call.shard import EarlierTree, Shard
from gyre_hpc.protocol import journal
from gyre_hpc.protocol.journal import (
    CallBegin,
    CallEnd,
    CallProgress,
    Delivered,
    ExecutionEnd,
    Forgotten,
    Record,
    Replayed,
    Stored,
    TakenUp,
)


def restarted(shard: Shard, records: Iterable[Any]) -> None:
    """Take in what is known of executions of earlier attempts (`Earlier`), then every record of this shard, in journal order."""
    num_own = 0
    for record in records:
        if isinstance(record, Earlier):
            shard.earlier[record.execution] = EarlierTree(record.attempts, earlier_tree(record.records))
            continue
        num_own += 1
        if not _is_known(shard, record):
            shard.outbox.observe(record)
            _take(shard, record)
    num_open = 0
    for tree in shard.trees.values():
        for node in tree.nodes.values():
            if node.finish:
                continue
            num_open += 1
            left = node.sampling.max_new_tokens - node.num_output
            shard.count(node.execution, "unreceived", min(left, shard.settings.progress_tokens))
            resume(shard, node)
            shard.emit(SetTimer(f"abandon/{node.call}", shard.settings.abandon_s))
    facts = {"records": num_own, "executions": len(shard.trees), "open_calls": num_open, "earlier": len(shard.earlier)}
    shard.emit(Note("journal_replayed", facts))


def earlier_tree(records: tuple[Record, ...]) -> RecordedTree:
    """Of one execution, from the records of earlier attempts that count."""
    tree = RecordedTree()
    for record in records:
        if isinstance(record, TakenUp):
            tree.begin_life(record.life)
        elif not isinstance(record, ExecutionEnd) and not _is_in(tree, record):
            take_in(tree, record)
    return tree


def take_in(tree: RecordedTree, record: Record) -> None:
    """A record of one call."""
    match record:
        case CallBegin():
            tree.add(record)
        case CallProgress():
            _progress(tree, record)
        case CallEnd():
            tree.end(record)
        case Delivered(call=call):
            tree.nodes[call].delivered = True
        case Replayed():
            tree.replay(record)
        case Stored():
            tree.keep(record)
        case Forgotten(call=call):
            tree.forgotten.add(call)


def _is_known(shard: Shard, record: Record) -> bool:
    """A write that failed half-way was repeated in the next segment."""
    execution = journal.execution_of(record)
    tree = shard.trees.get(execution)
    if isinstance(record, ExecutionEnd):
        return execution in shard.ended
    if isinstance(record, TakenUp):
        return execution in shard.ended or (tree is not None and tree.life >= record.life)
    if tree is None or record.call not in tree.nodes:
        return execution in shard.ended
    return _is_in(tree, record)


def _is_in(tree: RecordedTree, record: CallBegin | CallProgress | CallEnd | Delivered | Replayed | Stored | Forgotten) -> bool:
    node = tree.nodes.get(record.call)
    if node is None:
        return False
    match record:
        case CallBegin():
            return True
        case CallProgress():
            return record.start < node.num_output
        case CallEnd():
            return node.ended_at == record.time
        case Delivered():
            return node.delivered or record.life != tree.life
        case Replayed():
            return record.life != tree.life or node not in tree.recording
        case _:
            return False


def _take(shard: Shard, record: Record) -> None:
    match record:
        case TakenUp():
            take_over(shard, record)
        case ExecutionEnd(execution=execution):
            shard.trees.pop(execution, None)
            shard.ended.add(execution)
        case _:
            tree = shard.tree(journal.execution_of(record))
            before = tree.nodes.get(record.call)
            num_before = before.num_reprefilled if before is not None else 0
            take_in(tree, record)
            _count(shard, tree.nodes[record.call], record, num_before)


def _count(shard: Shard, node: Node, record: Record, num_before: int) -> None:
    match record:
        case CallProgress(output_ids=ids):
            shard.count(node.execution, "sampled", len(ids) // 4)
        case CallEnd():
            shard.count(node.execution, "reprefilled", record.num_reprefilled - num_before)
            node.num_reprefilled = record.num_reprefilled
            if record.finish in ANSWERED:
                count_tool_calls(shard, node.execution, len(record.tool_calls), record.malformed)


def _progress(tree: RecordedTree, record: CallProgress) -> None:
    node = tree.nodes[record.call]
    assert record.start == node.num_output, f"{record.call}: progress at {record.start}, journal has {node.num_output}"
    node.output += record.output_ids
    if node.logprobs is not None:
        node.logprobs += record.logprobs
    tree.num_sampled += len(record.output_ids) // 4
    node.finish = ""
    node.took(record.time)
    if record.cell not in node.cells[-1:]:
        node.cells.append(record.cell)
    if node.first_version is None:
        node.first_version = record.spans[0].version
    newest = max(span.version for span in record.spans)
    node.newest = newest if node.newest is None else max(node.newest, newest)
