"""After a restart: trees, identities, facts and counters from the journal. Open calls wait to be asked for again.

What the dead process had received and not yet journaled is drawn again from the same counters; how much that was nobody
knows, so each open call counts its largest possible interval as unreceived.
"""

from gyre_hpc.machines.base import Note, SetTimer
from gyre_hpc.machines.call.arrival import resume
from gyre_hpc.machines.call.ending import count_tool_calls
from gyre_hpc.machines.call.outbox import execution_of
from gyre_hpc.machines.call.recorded import ANSWERED
from gyre_hpc.machines.call.shard import Shard
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, ExecutionEnd, Forgotten, Record, Stored


def restarted(shard: Shard, records: tuple[Record, ...]) -> None:
    """Take in every record of this shard, in journal order."""
    for record in records:
        if not _is_known(shard, record):
            shard.outbox.observe(record)
            _replay(shard, record)
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
    shard.emit(Note("journal_replayed", {"records": len(records), "executions": len(shard.trees), "open_calls": num_open}))


def _is_known(shard: Shard, record: Record) -> bool:
    """A write that failed half-way was repeated in the next segment."""
    if isinstance(record, ExecutionEnd):
        return record.execution in shard.ended
    tree = shard.trees.get(execution_of(record.call))
    node = tree.nodes.get(record.call) if tree is not None else None
    if node is None:
        return execution_of(record.call) in shard.ended
    match record:
        case CallBegin():
            return True
        case CallProgress():
            return record.start < node.num_output
        case CallEnd():
            return node.ended_at == record.time
        case Delivered():
            return node.delivered
        case _:
            return False


def _replay(shard: Shard, record: Record) -> None:
    match record:
        case CallBegin():
            shard.tree(record.execution).add(record)
        case CallProgress():
            _progress(shard, record)
        case CallEnd():
            node = shard.trees[execution_of(record.call)].end(record)
            shard.count(node.execution, "reprefilled", record.num_reprefilled - node.num_reprefilled)
            node.num_reprefilled = record.num_reprefilled
            if record.finish in ANSWERED:
                count_tool_calls(shard, node.execution, len(record.tool_calls), record.malformed)
        case Delivered(call=call):
            shard.trees[execution_of(call)].nodes[call].delivered = True
        case Stored(call=call):
            shard.trees[execution_of(call)].keep(record)
        case Forgotten(call=call):
            shard.trees[execution_of(call)].forgotten.add(call)
        case ExecutionEnd(execution=execution):
            shard.trees.pop(execution, None)
            shard.ended.add(execution)


def _progress(shard: Shard, record: CallProgress) -> None:
    node = shard.trees[execution_of(record.call)].nodes[record.call]
    assert record.start == node.num_output, f"{record.call}: progress at {record.start}, journal has {node.num_output}"
    node.output += record.output_ids
    if node.logprobs is not None:
        node.logprobs += record.logprobs
    shard.trees[execution_of(record.call)].num_sampled += len(record.output_ids) // 4
    node.finish = ""
    if record.cell not in node.cells[-1:]:
        node.cells.append(record.cell)
    newest = max(span.version for span in record.spans)
    node.newest = newest if node.newest is None else max(node.newest, newest)
    shard.count(node.execution, "sampled", len(record.output_ids) // 4)
