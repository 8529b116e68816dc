"""The past of a long run: what executions that ended and were trained leave in the files of an attempt, through the writers of a run.

A run that was really begun is made longer: machine log, journal, events and newest checkpoint of its first attempt get more updates.
"""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre_hpc.clock import unix_s
from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.gateway.journal_writer import JournalWriter
from gyre_hpc.machines.batch import records
from gyre_hpc.observability.events import EventWriter
from gyre_hpc.protocol.identity import ExecutionId, GroupId, Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, ExecutionEnd, Record, Sampling, VersionSpan
from gyre_hpc.protocol.to_batch import Ended, ScoreState
from gyre_hpc.protocol.train_groups import TrainGroups
from gyre_hpc.shell.log import MachineLog, read_log
from gyre_hpc.train import timed_checkpoint
from gyre_hpc.train.checkpoint_folder import newest_whole, read_state

ATTEMPT = 1
_PROGRESS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Of one execution; the defaults are a small coding task."""

    calls: int = 8
    prompt_tokens: int = 3000
    """Of its first call."""
    new_tokens: int = 400
    """That each later call brings: what a tool said."""
    output_tokens: int = 160


class Past:
    """Writes whole updates. Use within a running loop."""

    def __init__(self, folder: RunFolder, sizes: Sizes, *, groups_per_batch: int, group_size: int) -> None:
        self._folder, self._sizes = folder, sizes
        self._groups_per_batch, self._group_size = groups_per_batch, group_size
        self._random = random.Random(0)
        self._journal = JournalWriter(folder.journal, "gateway-0", ATTEMPT, fsync=False)
        path = folder.machine_log("controller", ATTEMPT)
        written, whole = read_log(path, records.Record)
        self._log = MachineLog(path, whole)
        self._events = {name: EventWriter(folder.events(name, ATTEMPT), name, ATTEMPT) for name in ("controller", "gateway-0", "runner-0")}
        published = [one for one in written if isinstance(one, records.Published)]
        self.update = published[-1].version.step
        """Updates made so far."""
        self._totals = dict(next((one.totals for one in reversed(written) if isinstance(one, records.Counted)), {}))
        newest = newest_whole(folder.checkpoints)
        assert newest is not None, "a run of at least one update"
        self._state: dict[str, Any] = read_state(newest)
        self._consumed = TrainGroups.read(self._state["consumed"])
        self._unwritten: list[asyncio.Future[None]] = []
        self.num_executions, self.num_calls = len(self._consumed) * group_size, 0

    async def grow(self, executions: int) -> None:
        """Whole updates, until so many executions are consumed."""
        while self.num_executions < executions:
            await self._grow()

    async def close(self) -> None:
        """With the checkpoint of the last update."""
        await self._flush()
        self._journal.close()
        self._log.close()
        for events in self._events.values():
            events.close()
        version = Version(0, self.update)
        counters = {**self._state["counters"], "groups_begun": self.update * self._groups_per_batch, "update": self.update}
        state = {
            **self._state,
            "version": str(version),
            "update": self.update - 1,
            "consumed": self._consumed.plain(),
            "counters": counters,
        }
        timed_checkpoint.save(self._folder.checkpoints / str(version), version, {**state, "manifest_hash": _hash(self.update - 1)})

    async def _grow(self) -> None:
        groups = tuple(GroupId("train", self.update, place) for place in range(self._groups_per_batch))
        for group in groups:
            await self._group(group)
        num = len(groups) * self._group_size
        after = Version(0, self.update + 1)
        self._record(records.CommitIntended(self.update, _hash(self.update), after, groups, num))
        self._record(records.Published(after, self.update, {"grad_norm": 1.0}))
        for name, amount in {"calls_train": num * self._sizes.calls, "updates": 1, "micro_batches": num}.items():
            self._totals[name] = self._totals.get(name, 0) + amount
        self._record(records.Counted(dict(self._totals)))
        facts = {"update": self.update, "version": str(after), "manifest_hash": _hash(self.update), "executions": num}
        self._note("controller", "applied", facts | {"micro_batches": num, "by_satellites": 0, "joined_mid_batch": 0})
        self._note("controller", "version_published", {"version": str(after), "update": self.update})
        self.update += 1
        self.num_executions += num

    async def _group(self, group: GroupId) -> None:
        version = Version(0, self.update)
        self._record(records.GroupBegun(group, version.step))
        self._note("controller", "group_begun", {"group": str(group), "update": self.update})
        members = [str(ExecutionId(group.purpose, group.slot, group.group, index)) for index in range(self._group_size)]
        for execution in members:
            self._record(records.FirstCalled(execution, version))
            self._note("controller", "execution_began", {"execution": execution, "purpose": "train"})
            self._note("runner-0", "execution_began", {"execution": execution})
            self._note("controller", "first_call", {"execution": execution, "version": str(version)})
            for number in range(self._sizes.calls):
                for record in self._call(execution, number, version):
                    self._say(record)
            self._say(ExecutionEnd(execution, unix_s()))
            ended = Ended(execution, ScoreState.scored, 1.0, True, "", 30.0, {"0:count": 1.0})
            self._record(records.ExecutionEnded(ended))
            facts = {"execution": execution, "state": "scored", "score": 1.0, "reason": ""}
            self._note("runner-0", "execution_ended", facts)
            self._note("controller", "execution_ended", facts | {"passed": True, "wall_s": 30.0, "purpose": "train"})
        self._consumed = self._consumed.united([group])
        self.num_calls += len(members) * self._sizes.calls
        await self._flush()

    def _call(self, execution: str, number: int, version: Version) -> list[Record]:
        sizes, call = self._sizes, f"{execution}/{number}"
        text = [f"{self._random.getrandbits(128):032x}" for _ in range(5)]
        begin = CallBegin(
            call=call,
            execution=execution,
            parent=f"{execution}/{number - 1}" if number else None,
            suffix_ids=self._random.randbytes(4 * (sizes.new_tokens if number else sizes.prompt_tokens)),
            role="main",
            thread="main",
            branch="" if number else "root",
            sampling=Sampling(max_new_tokens=sizes.output_tokens, key=text[0]),
            requested={},
            request_hash=text[1],
            time=unix_s(),
            tool_owner=(f"call_{execution}_{number - 1}_0",) if number else (),
            context=text[2],
            protocol="chat_completions",
            likeness=text[3],
        )
        pieces = [
            CallProgress(call, start, self._random.randbytes(4 * num), self._random.randbytes(4 * num), (VersionSpan(version, start, start + num),), version, "cell-0", unix_s())
            for start in range(0, sizes.output_tokens, _PROGRESS)
            for num in (min(_PROGRESS, sizes.output_tokens - start),)
        ]  # fmt: skip
        tools = (f"call_{execution}_{number}_0",)
        end = CallEnd(call, "tool_calls", sizes.output_tokens, 0, tools, text[4], ("cell-0",), 0, unix_s())
        facts = {"call": call, "finish": "tool_calls", "num_output": sizes.output_tokens, "cells": ["cell-0"], "wall_s": 3.0}
        self._note("gateway-0", "call_ended", facts)
        return [begin, *pieces, end, Delivered(call, unix_s())]

    def _note(self, process: str, kind: str, fields: dict[str, Any]) -> None:
        self._events[process].note(kind, fields)

    def _say(self, record: Record) -> None:
        self._journal.append(record, self._wait())

    def _record(self, record: records.Record) -> None:
        self._log.append(record, self._wait())

    def _wait(self) -> Any:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append(written)

        def done(error: Exception | None) -> None:
            written.set_result(None) if error is None else written.set_exception(error)

        return done

    async def _flush(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        await asyncio.gather(*unwritten)


def _hash(update: int) -> str:
    """Of a manifest that nobody asks for any more."""
    return f"{update:032x}"


def journal_bytes(folder: Path) -> int:
    """Size of all segments."""
    return sum(path.stat().st_size for path in folder.glob("*.gyj"))
