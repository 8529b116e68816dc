"""GatewayMachine: one per gateway shard. Inputs in, effects out; the steps of a call live in the files beside this one.

Keys of actions and timers are `<kind>/<call or connection>[/<n>]`; a result whose key is not the awaited one is late and ignored.
"""

from typing import Any

from gyre_hpc.machines.base import (
    Effect,
    Failed,
    Finished,
    Input,
    Machine,
    Note,
    Persisted,
    Progressed,
    Received,
    Restarted,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.call import arrival, delivery, ending, journal_queue, sampling, stored
from gyre_hpc.machines.call.actions import Arrived, Cancel, Forget, Leaving, Left, MeasureCpu, Retrieve
from gyre_hpc.machines.call.live import CallState, LiveCall
from gyre_hpc.machines.call.lives import is_over
from gyre_hpc.machines.call.progress import flush
from gyre_hpc.machines.call.restart import restarted
from gyre_hpc.machines.call.settings import GatewaySettings
from gyre_hpc.machines.call.shard import Shard, split_key
from gyre_hpc.machines.membership import TIMER as REGISTER
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.journal import CallEnd, CallProgress, Forgotten, Record, Replayed, Stored
from gyre_hpc.protocol.supervision import Directory
from gyre_hpc.protocol.to_batch import GatewayReport
from gyre_hpc.protocol.to_gateway import Table

CONTROLLER = "controller"
REPORT = "report"
REPORT_SOON_S = 0.1
"""News are gathered this long; a new table is acknowledged at once, because a role switch waits for it."""
CPU = "cpu"
_HARMLESS = frozenset({"alive", "attempt", "render", "hangup"})
"""What may fail without a consequence: an empty event says nothing that could be missed; attempts and prompts are those of a call
that awaits them no more; what cannot be hung up on is gone. Parses and looks at the CPU never fail: their shell's own bugs end it."""


class GatewayMachine(Machine):
    """First input must be Restarted (with no records on a fresh start)."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._shard = Shard(settings)
        self._membership = Membership(settings.register)
        self._seq = 0
        self._cpu_s = 0.0
        self._is_measuring = False
        self._reports_soon = False
        self._told_full = ""
        """Why the journal takes nothing, as people were told last."""

    @property
    def tokens(self) -> dict[str, int]:
        """Token counters of this attempt: `sampled`, `reprefilled`, `unreceived`, ...; those of evaluation and warm start apart."""
        return dict(self._shard.tokens)

    def handle(self, now: float, input: Input) -> list[Effect]:
        shard = self._shard
        shard.now, shard.out = now, []
        match input:
            case Received(message=message):
                self._received(message)
            case Progressed(key=key, item=item):
                live = self._live(key)
                if live is not None and live.attempt_key == key:
                    sampling.progressed(shard, live, item)
                elif key.startswith("attempt/"):
                    shard.count(split_key(key)[1], "unreceived", len(item.ids) // 4)
            case Finished(key=key, result=result):
                self._finished(key, result)
            case Failed(key=key, kind=kind, reason=reason):
                self._failed(key, kind, reason)
            case Persisted(key=key):
                self._persisted(shard.journal.persisted(key))
                if not shard.journal.full:
                    self._tell_full("")
            case TimerFired(key=key):
                self._timer(key)
            case Restarted(records=records):
                restarted(shard, records)
                shard.emit(*self._membership.beat())
                self._report()
            case _:
                raise AssertionError(f"unknown input {input!r}")
        self._report_if_news()
        return shard.out

    def _received(self, message: Any) -> None:
        match message:
            case Arrived():
                arrival.arrived(self._shard, message)
            case Left(conn=conn):
                arrival.left(self._shard, conn)
            case Retrieve() | Forget() | Cancel():
                self._inquiry(message)
            case Table():
                self._table(message)
            case Directory():
                self._shard.emit(*self._membership.heard(message))
            case Leaving():
                # Those without a node are being rendered, and have no tokens yet.
                for live in [live for live in self._shard.live.values() if live.node is not None]:
                    flush(self._shard, live)

    def _inquiry(self, message: Retrieve | Forget | Cancel) -> None:
        if over := is_over(self._shard, message):
            delivery.refuse(self._shard, message.conn, 404, "execution_ended", over)
            return
        match message:
            case Retrieve():
                stored.retrieve(self._shard, message)
            case Forget():
                stored.forget(self._shard, message)
            case Cancel():
                stored.cancel(self._shard, message)

    def _table(self, table: Table) -> None:
        shard = self._shard
        # What did not fit into a report.
        shard.has_news |= shard.outbox.has_more
        shard.outbox.acknowledge(table.acked)
        for execution in table.ended:
            if execution not in shard.ended:
                ending.end_execution(shard, execution)
        ending.end_groups(shard, table.over)
        if shard.routing.take(shard.now, table):
            shard.emit(Note("table", {"number": table.number, "cells": [row.cell for row in table.rows]}))
            sampling.rehome(shard, sorted(shard.routing.moved))
            sampling.watch_gone(shard)
            sampling.seek_all(shard)
            self._report()
            shard.has_news = False

    def _finished(self, key: str, result: Any) -> None:
        shard = self._shard
        kind, _ = split_key(key)
        live = self._live(key)
        if key == CPU:
            self._cpu_s, self._is_measuring = result, False
        elif kind == "reply":
            delivery.replied(shard, key.partition("/")[2])
        elif kind in ("refuse", "confirm"):
            delivery.closed(shard, key.partition("/")[2])
        elif live is None:
            return
        elif key == live.attempt_key:
            sampling.finished(shard, live, result)
        elif key == live.render_key:
            arrival.rendered(shard, live, result)
        elif key == live.parse_key:
            ending.parsed(shard, live, result)
        elif key == live.delta_key:
            delivery.said(shard, live, result)

    def _failed(self, key: str, kind: str, reason: str) -> None:
        shard = self._shard
        what, _ = split_key(key)
        live = self._live(key)
        if what == "journal":
            if not shard.journal.full:
                shard.emit(SetTimer(journal_queue.TIMER, journal_queue.RETRY_S))
                self._tell_full(reason)
            shard.journal.failed(key, reason)
            shard.has_news = True
        elif what in ("reply", "refuse", "confirm"):
            delivery.not_told(shard, key.partition("/")[2])
        elif live is not None and key == live.attempt_key:
            sampling.failed(shard, live, kind, reason)
        elif live is not None and key == live.render_key:
            arrival.not_rendered(shard, live, reason)
        elif what == "say":
            arrival.not_said(shard, split_key(key)[1])
        elif what not in _HARMLESS:
            raise AssertionError(f"{key} failed, which it never may: {kind}: {reason}")

    def _persisted(self, record: Record) -> None:
        shard = self._shard
        shard.has_news |= shard.outbox.observe(record)
        if isinstance(record, CallProgress):
            live = shard.live.get(record.call)
            if live is not None:
                live.durable = max(live.durable, record.start + len(record.output_ids) // 4)
                delivery.say_more(shard, live)
        elif isinstance(record, CallEnd):
            ending.recorded_end(shard, record)
            stored.confirm_durable(shard, record.call)
        elif isinstance(record, Stored):
            ending.recorded_stored(shard, record)
        elif isinstance(record, Replayed):
            arrival.recorded_claim(shard, record)
        elif isinstance(record, Forgotten):
            stored.confirm_durable(shard, record.call)

    def _timer(self, key: str) -> None:
        shard = self._shard
        kind, _, rest = key.partition("/")
        live = shard.live.get(rest)
        if key == REGISTER:
            shard.emit(*self._membership.beat())
        elif key == REPORT:
            self._report()
        elif key == journal_queue.TIMER:
            self._retry_journal()
        elif kind == "alive":
            delivery.keep_alive(shard, rest)
        elif kind == "words":
            delivery.hang_up(shard, rest)
        elif kind == "barred":
            sampling.seek_all(shard)
        elif live is None:
            return
        elif kind == "progress":
            flush(shard, live)
        elif kind == "abandon":
            ending.abandon(shard, live)
        elif kind == "deadline":
            ending.miss_deadline(shard, live)
        elif kind == "gone":
            sampling.gone(shard, live)

    def _retry_journal(self) -> None:
        shard = self._shard
        shard.emit(*shard.journal.retry())
        shard.has_news = True
        if shard.journal.full:
            shard.emit(SetTimer(journal_queue.TIMER, journal_queue.RETRY_S))
        else:
            sampling.seek_all(shard)

    def _tell_full(self, reason: str) -> None:
        """Once; that it is cured when a record is durable, not when one is tried again."""
        if reason != self._told_full:
            self._told_full = reason
            self._shard.emit(Note("storage_full", {"reason": reason}))

    def _live(self, key: str) -> LiveCall | None:
        return self._shard.live.get(split_key(key)[1])

    def _report_if_news(self) -> None:
        if self._shard.has_news and not self._reports_soon:
            self._reports_soon = True
            self._shard.emit(SetTimer(REPORT, REPORT_SOON_S))
        self._shard.has_news = False

    def _report(self) -> None:
        shard, register = self._shard, self._shard.settings.register
        self._seq += 1
        self._reports_soon = False
        report = GatewayReport(
            shard=register.process,
            incarnation=register.incarnation,
            seq=self._seq,
            table=shard.routing.table.number,
            first_fact=shard.outbox.first_fact,
            facts=shard.outbox.facts,
            live_calls=sum(live.state not in (CallState.ended, CallState.suspended) for live in shard.live.values()),
            waiting_calls=len(shard.waiting),
            tokens=dict(shard.tokens),
            cpu_s=self._cpu_s,
            storage_full=shard.journal.full,
        )
        shard.emit(Send(CONTROLLER, report), SetTimer(REPORT, shard.settings.report_s))
        if not self._is_measuring:
            self._is_measuring = True
            shard.emit(Start(CPU, MeasureCpu()))
