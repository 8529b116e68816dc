"""The cell's report: one whole document, sent at every change and every heartbeat."""

import msgspec

from gyre_hpc.machines.base import Effect, Send
from gyre_hpc.machines.cell.commit import commit_report
from gyre_hpc.machines.cell.state import State
from gyre_hpc.protocol.to_batch import CellReport, CommitReport, KvFacts


class Reporter:
    """Numbers the documents and knows what was said last."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._seq = 0
        self._said: CellReport | None = None
        """What was new in it (see _news)."""
        self._figures: CellReport | None = None
        """What the newest heartbeat said (see _figures)."""
        self.quiet_beats = 0
        """Heartbeats one after the other that said what the one before them had said."""

    def tell(self, report: CellReport, heartbeat: bool) -> list[Effect]:
        """Send `report` (its seq is set here) if it says something new, or if the heartbeat is due."""
        news = _news(report)
        if heartbeat:
            figures = _figures(report)
            self.quiet_beats, self._figures = (self.quiet_beats + 1 if figures == self._figures else 0), figures
        elif news == self._said:
            return []
        else:
            self.quiet_beats = 0
        self._seq += 1
        self._said = news
        return [Send(self._to, msgspec.structs.replace(report, seq=self._seq))]


_NO_KV = KvFacts()


def _news(report: CellReport) -> CellReport:
    """Without what changes all the time and can wait for the heartbeat."""
    return msgspec.structs.replace(
        report, cpu_s=0.0, engine_pids=(), tokens={}, curve=(), live_requests=0, kv=_NO_KV, waiting="", order_seq=0
    )


def _figures(report: CellReport) -> CellReport:
    """Without what changes though nothing happens."""
    return msgspec.structs.replace(report, cpu_s=0.0, waiting="", order_seq=0)


def report_of(state: State, *, waiting: str, error: str, broken: str) -> CellReport:
    """What there is to say now; `seq` is stamped when it is sent."""
    order, body, total, figures, settings = state.order, state.body, state.total, state.figures, state.settings
    return CellReport(
        cell=settings.name,
        incarnation=settings.incarnation,
        seq=0,
        order_seq=order.seq if order is not None else -1,
        term=order.term if order is not None else 0,
        state=body.state,
        version=body.version,
        snapshots=tuple(sorted(body.store)),
        snapshot_url=settings.snapshot_url,
        engine_url=settings.engine_url,
        live_requests=figures.live_requests,
        update=total.update,
        fence=total.fence,
        accumulated=tuple(total.facts),
        spoiled="" if total.handed_in else total.closed,
        held=figures.held,
        handed_in=order is not None and order.hand_in_to is not None and total.handed_in and total.stands_for(order),
        train_tokens_per_s=total.tokens_per_s,
        commit=_commit(state),
        applied=state.done.applied,
        fitted=state.done.fitted,
        saved=state.saved,
        save_s=state.save_s,
        fit_progress=state.fit_progress,
        switch=state.switch,
        memory=body.memory,
        memory_after=dict(body.memory_after),
        pids=figures.pids,
        engine_pids=figures.engine_pids,
        groups_built=figures.groups_built,
        tokens=figures.tokens,
        curve=figures.curve,
        cpu_s=figures.cpu_s,
        kv=figures.kv,
        moved=state.giving.moved,
        error=error,
        broken=broken,
        waiting=waiting,
    )


def _commit(state: State) -> CommitReport | None:
    if state.commit is None or state.order is None:
        return None
    return commit_report(state.commit, state.order, state.total, state.figures.held)
