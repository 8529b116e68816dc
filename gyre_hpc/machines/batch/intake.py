"""Reports come in: what cells, gateways and runners say becomes state, each fact once."""

from functools import partial

from gyre_hpc.machines.base import Effect, Note, Send
from gyre_hpc.machines.batch.fleet import Cell
from gyre_hpc.machines.batch.giving_up import count_end
from gyre_hpc.machines.batch.groups import GroupState
from gyre_hpc.machines.batch.moving import take_moved
from gyre_hpc.machines.batch.phases import finish
from gyre_hpc.machines.batch.records import ExecutionEnded, FirstCalled
from gyre_hpc.machines.batch.state import State, persist, void
from gyre_hpc.machines.batch.taking_up import can_go_on, take_replay_fact, take_up, try_again
from gyre_hpc.machines.batch.trial import Phase
from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.protocol.supervision import Directory, RestartCell, SetAside
from gyre_hpc.protocol.to_batch import CallEnded, CellReport, CellState, Ended, FirstCall, GatewayReport, RunnerReport, ScoreState

_PASS_WINDOW = 96
"""Executions over which the shown training pass rate averages."""


def take_directory(state: State, now: float, directory: Directory) -> list[Effect]:
    """New addresses; cells whose process ended are lost."""
    state.urls |= {entry.process: entry.url for entry in directory.entries if entry.url}
    effects: list[Effect] = []
    for cell, reason in state.fleet.take_directory(now, directory):
        # One that is set aside is not asked for again.
        effects += lose_cell(state, now, cell, reason) if cell.lost and not cell.aside else _let_go(state, cell, reason)
    return effects + _forget_unnamed(state, {entry.process for entry in directory.entries})


def _forget_unnamed(state: State, named: set[str]) -> list[Effect]:
    """Cells that nobody planned and that the directory names no more: their node is long gone. One that we did not know of is lost first."""
    state.urls = {name: url for name, url in state.urls.items() if name in named}
    effects: list[Effect] = []
    for cell in [cell for cell in state.fleet.satellites if cell.is_joiner and cell.name not in named]:
        if not cell.lost:
            cell.lost = cell.aside = "it is gone"
            effects += _let_go(state, cell, cell.lost)
        elif state.commit is None or cell.name not in state.commit.members:
            state.fleet.forget(cell)
            state.activities.pop(cell.name, None)
    return effects


def lose_cell(state: State, now: float, cell: Cell, reason: str) -> list[Effect]:
    """Void what the cell holds and order its next start; set it aside after too many failed starts of its own. Without a core the run
    cannot go on: it ends then."""
    never_worked = cell.report is None or cell.report.state is CellState.starting
    cell.failed_starts = 0 if not never_worked else cell.failed_starts + cell.is_own_start
    cell.lost = reason or "lost"
    effects = _let_go(state, cell, cell.lost)
    settings, is_core = state.settings, cell is state.fleet.core
    if is_core and cell.failed_starts >= settings.max_failed_starts_of_core:
        why = f"{cell.name}, the core, failed {cell.failed_starts} starts in a row; last: {cell.lost}; see logs/{cell.name}.log"
        return [*effects, *finish(state, now, 1, why)]
    if cell.failed_starts >= settings.max_failed_starts and not is_core:
        return [*effects, *_set_aside(cell, f"{cell.failed_starts} failed starts; last: {cell.lost}")]
    return [*effects, ask_restart(cell, now), Note("cell_restarted", {"cell": cell.name, "reason": cell.lost})]


def lose_stuck(state: State, now: float, cell: Cell, reason: str) -> list[Effect]:
    """As `lose_cell`, for a cell that is there and gets nowhere. One that does so start after start, with no update between, would for
    ever: weights that it loads again each time look like progress."""
    update, count = cell.stuck
    cell.stuck = (state.update, count + 1 if update == state.update else 1)
    effects, num_starts = lose_cell(state, now, cell, reason), cell.stuck[1]
    if cell.aside or num_starts < state.settings.max_stuck_starts:
        return effects
    why = f"stuck in {num_starts} starts in a row; last: {reason}"
    if cell is state.fleet.core:
        return [*effects, *finish(state, now, 1, f"{cell.name}, the core, got {why}; see logs/{cell.name}.log")]
    return [*effects, *_set_aside(cell, why)]


def _set_aside(cell: Cell, reason: str) -> list[Effect]:
    """For the rest of the run. A restart that was asked for has no effect any more."""
    cell.aside = reason
    return [Note("alarm", {"what": "cell set aside", "cell": cell.name, "reason": reason}), _tell(SetAside(cell.name, reason))]


def _let_go(state: State, cell: Cell, reason: str) -> list[Effect]:
    """An incarnation of the cell is gone, with all that it held."""
    is_core = cell is state.fleet.core
    voided = state.batch.void_core(cell.name) if is_core else state.batch.void(cell.name)
    cell.fence += 1
    cell.hand_in = False
    state.add("cells_lost")
    if is_core and state.version is not None:
        # Its memory held the newest weights and optimizer: look for the newest checkpoint before anything else.
        state.looked_for_checkpoint = False
    return [Note("cell_lost", {"cell": cell.name, "reason": reason, "voided": voided}), *note_activity(state, cell)]


def ask_restart(cell: Cell, now: float) -> Send:
    """Only the controller orders a cell's restart. Asked again while the directory still shows the lost incarnation."""
    cell.asked_at = now
    return _tell(RestartCell(cell.name, cell.incarnation, cell.lost))


def _tell(message: RestartCell | SetAside) -> Send:
    return Send("supervisor-0", message)


def take_cell_report(state: State, now: float, report: CellReport) -> list[Effect]:
    """Accumulated micro-batches, hand-ins and finished switches of one cell."""
    if not state.fleet.take_report(now, report):
        return []
    cell = state.fleet.cells[report.cell]
    effects = state.lending.observe(cell) + take_moved(state, cell, now) + note_activity(state, cell)
    if report.update == state.update and report.fence == cell.fence:
        effects += void(state, cell, report.spoiled) if report.spoiled else _take_accumulated(state, now, cell, report)
    if cell is state.fleet.core:
        effects += _take_hand_ins(state, now, report)
    return effects


def _take_accumulated(state: State, now: float, cell: Cell, report: CellReport) -> list[Effect]:
    facts = {fact.id: fact for fact in report.accumulated}
    effects: list[Effect] = []
    for entry in state.batch.ledger.accumulate(cell.name, facts):
        state.moved_on(now)
        cell.working_since = now
        fact = facts[entry.id]
        state.add("micro_batches")
        state.add("micro_batches_by_satellites", cell is not state.fleet.core)
        state.add("on_policy_tokens", fact.num_on_policy)
        state.totals["max_logprob_gap"] = max(state.totals.get("max_logprob_gap", 0.0), fact.max_logprob_gap)
        effects.append(
            Note(
                "micro_batch_accumulated",
                {
                    "id": entry.id, "cell": cell.name, "update": state.update, "seconds": fact.seconds, "targets": fact.num_targets,
                    "gap": fact.max_logprob_gap, "on_policy": fact.num_on_policy, "clipped": fact.clipped, "loss": fact.loss_sum,
                    "satellite": cell is not state.fleet.core, "live": len(state.groups.live), "batch_full": state.batch.full,
                },
            )
        )  # fmt: skip
    return effects


def _take_hand_ins(state: State, now: float, report: CellReport) -> list[Effect]:
    effects: list[Effect] = []
    for held in report.held:
        giver = state.fleet.cells.get(held.cell)
        if giver is None or held.fence != giver.fence or report.update != state.update:
            continue
        if state.batch.take_hand_in(held.cell, held.fence, report.cell, held.ids):
            state.moved_on(now)
            # What it held under this fence now lives in the core; what it accumulates later gets a number of its own.
            giver.fence += 1
            giver.hand_in = False
            effects.append(Note("hand_in", {"cell": held.cell, "fence": held.fence, "micro_batches": len(held.ids)}))
    return effects


def note_activity(state: State, cell: Cell) -> list[Effect]:
    """An event whenever what a cell does, or why it does nothing, changes."""
    activity = activity_of(state, cell)
    if state.activities.get(cell.name) == activity:
        return []
    state.activities[cell.name] = activity
    role, _, reason = activity.partition(":")
    return [Note("cell_state", {"cell": cell.name, "state": role, "reason": reason, "term": cell.term})]


def activity_of(state: State, cell: Cell) -> str:
    """`<state>:<idle reason>`; the reason is empty while the cell works."""
    report = cell.report
    if cell.aside:
        return "lost:set_aside"
    if cell.lost or report is None:
        return "lost:lost" if cell.lost else "starting:starting"
    if report.state is CellState.rollout:
        calls = cell.partner.report if cell.prefills and cell.partner is not None else report
        return f"rollout:{'' if calls is not None and calls.live_requests else _why_no_calls(state)}"
    if report.state is CellState.train:
        fits = state.phase is Phase.warm_fit and cell is state.fleet.core
        busy = bool(state.batch.ledger.leased(cell.name)) or report.commit is not None or fits
        return f"train:{'' if busy else 'waits_for_groups' if not state.batch.full else 'waits_for_commit'}"
    return f"{report.state.value}:"


def _why_no_calls(state: State) -> str:
    if state.phase is not Phase.training:
        return state.phase.value
    return "tools_or_empty" if state.groups.live else "no_executions"


def take_gateway_report(state: State, now: float, report: GatewayReport) -> list[Effect]:
    """First calls and ended calls, each by its number once; the table acknowledgement."""
    known = state.gateways.get(report.shard)
    if known is not None and (report.incarnation, report.seq) <= (known.incarnation, known.seq):
        return []
    if known is None:
        # Numbers go on over restarts of a shard: a later incarnation repeats facts, it does not renumber them.
        state.gateway_seen[report.shard] = state.gateway_acked[report.shard] = -1
    state.gateways[report.shard], state.gateway_heard[report.shard] = report, now
    effects: list[Effect] = []
    for number, fact in enumerate(report.facts, start=report.first_fact):
        if number <= state.gateway_seen[report.shard]:
            continue
        state.gateway_seen[report.shard] = number
        match fact:
            case FirstCall(execution=execution, version=version):
                if state.groups.is_known(execution):
                    state.groups.first_call(execution, version)
                    effects += persist(state, FirstCalled(execution, version), _nothing)
                    effects.append(Note("first_call", {"execution": execution, "version": str(version)}))
            case CallEnded():
                state.moved_on(now)
                _count_call(state, fact)
            case _:
                state.moved_on(now)
                take_replay_fact(state, fact)
    # Acknowledged once all of them are durable: records become so in order.
    seen, shard, incarnation = state.gateway_seen[report.shard], report.shard, report.incarnation
    if not any(isinstance(record, FirstCalled) for record, _ in state.pending.values()):
        _acknowledge(state, shard, incarnation, seen)
    else:
        last = next(reversed(state.pending))
        record, then = state.pending[last]
        state.pending[last] = (record, lambda state, now: [*then(state, now), *_acknowledge(state, shard, incarnation, seen)])
    return effects


def _acknowledge(state: State, shard: str, incarnation: int, number: int) -> list[Effect]:
    if state.gateways[shard].incarnation == incarnation:
        state.gateway_acked[shard] = max(state.gateway_acked[shard], number)
    return []


def _nothing(state: State, now: float) -> list[Effect]:
    return []


def _count_call(state: State, fact: CallEnded) -> None:
    purpose = ExecutionId.parse(fact.execution).purpose
    state.add(f"calls_{purpose}")
    state.add(f"sampled_{purpose}", fact.num_sampled)
    state.add("malformed", fact.malformed)
    state.add("calls_continued_elsewhere", fact.continued_elsewhere and purpose == "train")


def take_runner_report(state: State, now: float, report: RunnerReport) -> list[Effect]:
    """Ended executions: recorded on disk first, acknowledged after that."""
    known = state.runners.get(report.runner)
    if report.runner in state.lost_runners or (known is not None and (report.incarnation, report.seq) <= (known.incarnation, known.seq)):
        return []
    state.runners[report.runner] = report
    effects: list[Effect] = []
    waiting = {record.ended.execution for record, _ in state.pending.values() if isinstance(record, ExecutionEnded)}
    waiting |= state.restarting
    for ended in report.ended:
        if state.groups.is_awaited(ended) and ended.execution not in waiting:
            effects += persist(state, ExecutionEnded(ended), partial(end_execution, ended=ended))
    return effects


def end_execution(state: State, now: float, *, ended: Ended) -> list[Effect]:
    """The end is durable: count it, or restart what failed through no fault of the agent."""
    state.moved_on(now)
    count_end(state, ended)
    state.assignments.pop(ended.execution, None)
    state.spared_s.pop(ended.execution, None)
    id = ExecutionId.parse(ended.execution)
    effects: list[Effect] = [
        Note(
            "execution_ended",
            {
                "execution": ended.execution, "state": ended.state.value, "score": ended.score, "passed": ended.passed,
                "reason": ended.reason, "wall_s": ended.wall_s, "purpose": id.purpose,
            },
        )
    ]  # fmt: skip
    if goes_on(state, ended):
        return [*effects, *take_up(state, now, ended.execution, ended.reason)]
    state.recently_ended[ended.execution] = now
    if deserves_another_try(state, ended):
        return [*effects, *try_again(state, ended.execution)]
    if id.purpose == "train" and ended.score is not None:
        old = state.train_pass_rate
        state.train_pass_rate = float(ended.passed) if old is None else old + (ended.passed - old) / _PASS_WINDOW
    group = state.groups.end(ended)
    if group is not None and group.state is GroupState.complete and id.purpose == "train":
        effects.append(Note("group_complete", {"group": str(group.id), "first_step": group.first_step, "update": state.update}))
    return effects


def goes_on(state: State, ended: Ended) -> bool:
    """It ended with its runner: what it said is recorded."""
    return ended.is_lost and can_go_on(state, ended.execution)


def deserves_another_try(state: State, ended: Ended) -> bool:
    """It failed through no fault of the agent, and not too often."""
    restarts = ExecutionId.parse(ended.execution).restart
    return ended.state is ScoreState.infra_error and restarts < state.settings.max_restarts_of_execution
