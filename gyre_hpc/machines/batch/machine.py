"""The batch machine: one entry for all that the controller decides.

Parts (each a file): intake (reports -> state), planning (gates, batch, micro-batches), consolidation (commit, versions,
checkpoints), lending (role changes), phases (course of the run), sending (documents), restore (records -> state).

Invariants (checked by the simulation after every event):
  - every micro-batch of a batch is in exactly one committed update;
  - versions, terms, fences and generations only grow;
  - a version is published only after the core reported it applied, and an intent was durable before the apply order;
  - at most one cell changes its role at a time; the core trains before any satellite does and until the update;
  - every wait ends: by a report, a deadline of the runner, the commit deadline, or the progress deadline of the run.
"""

from functools import partial
from typing import Any

from gyre_hpc.machines.base import (
    Effect,
    Failed,
    Finished,
    Input,
    Machine,
    Note,
    Persist,
    Persisted,
    Received,
    Restarted,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.batch import consolidation, intake, phases, planning, runners, satellites, saving, watchdog
from gyre_hpc.machines.batch.actions import WriteStatus
from gyre_hpc.machines.batch.alarms import Alarms
from gyre_hpc.machines.batch.awake import Awake, put_off
from gyre_hpc.machines.batch.facts import facts_of
from gyre_hpc.machines.batch.fleet import Fleet
from gyre_hpc.machines.batch.giving_up import watch_executions, watch_units
from gyre_hpc.machines.batch.groups import Groups
from gyre_hpc.machines.batch.late import watch_late
from gyre_hpc.machines.batch.lending import Lending
from gyre_hpc.machines.batch.moving import kv_order
from gyre_hpc.machines.batch.news import has_news
from gyre_hpc.machines.batch.parsing import watch_tool_calls
from gyre_hpc.machines.batch.restore import restore
from gyre_hpc.machines.batch.satellites import Satellites
from gyre_hpc.machines.batch.sending import is_known, next_table, send_all
from gyre_hpc.machines.batch.settings import BatchSettings
from gyre_hpc.machines.batch.state import State, new_batch
from gyre_hpc.machines.batch.status import status_of
from gyre_hpc.machines.batch.trial import EVALUATIONS, Phase
from gyre_hpc.machines.membership import TIMER as REGISTER
from gyre_hpc.machines.membership import Membership
from gyre_hpc.protocol.supervision import Directory, SaveNow
from gyre_hpc.protocol.to_batch import CellReport, GatewayReport, RunnerReport
from gyre_hpc.scheduler.choose import decide

TICK, STATUS = "tick", "status"


class BatchMachine(Machine):
    """See module. `secret` makes the nonces of generations; it is not part of the settings because those are logged."""

    def __init__(self, settings: BatchSettings, membership: Membership, secret: str = "") -> None:
        self._membership = membership
        self._tick_s = settings.tick_s
        """To the next tick."""
        self.awake = Awake(TICK)
        self._alarms = Alarms()
        self._directory = -1
        """Number of the newest one taken."""
        self.state = State(
            settings=settings,
            secret=secret,
            fleet=Fleet(settings),
            groups=Groups(settings.groups_per_batch, settings.group_size),
            batch=new_batch(0),
            lending=Lending(settings.switch_s, settings.pull_s),
            satellites=Satellites(settings.satellites, settings.satellite_pace),
            generation=settings.number_base,
            table_number=settings.number_base,
        )

    def handle(self, now: float, input: Input) -> list[Effect]:
        """See machines.base.Machine."""
        is_told_something, was_finished = self._is_told_something(input), self.state.finished
        effects = self._take(now, input)
        if is_told_something and not self.state.finished:
            effects += self._step(now)
            effects += self._pace(input, effects)
        effects = self._alarms.sift(self.state, now, effects)
        if self.state.finished and not was_finished:
            effects.append(phases.last_status(self.state, now))
        self.awake.expect(now, effects)
        return effects

    def _pace(self, told: Input, effects: list[Effect]) -> list[Effect]:
        """How soon the next tick has to come. Documents that are sent again are no news: their answers would be."""
        shortest = self.state.settings.tick_s
        if told == TimerFired(TICK):
            is_quiet = all(
                isinstance(effect, Send | SetTimer) or (isinstance(effect, Start) and effect.key == STATUS) for effect in effects
            )
            self._tick_s = max(shortest, min(self.state.settings.quiet_tick_s, 2 * self._tick_s)) if is_quiet else shortest
        elif self._tick_s > shortest:
            self._tick_s = shortest
            return [SetTimer(TICK, shortest)]
        return []

    def _is_told_something(self, told: Input) -> bool:
        """Else nothing follows from it, neither from what it says nor from when it comes: a look at everything can wait for the tick."""
        match told:
            case TimerFired(key=key):
                return key != REGISTER
            case Received(message=Directory(number=number)):
                is_new, self._directory = number > self._directory, max(number, self._directory)
                return is_new
            case Received(message=CellReport() | GatewayReport() | RunnerReport() as report):
                return has_news(self.state, report)
            case Finished(key=key):
                return key != STATUS
        return True

    def _take(self, now: float, told: Input) -> list[Effect]:
        state = self.state
        match told:
            case Restarted(records=records):
                return [*self._membership.beat(), SetTimer(TICK, state.settings.tick_s), *restore(state, now, tuple(records))]
            case Received(message=message):
                return self._receive(now, message)
            case TimerFired(key="tick"):
                return [SetTimer(TICK, self._tick_s), *self._tick(now)]
            case TimerFired(key=key) if key == REGISTER:
                return self._membership.beat()
            case Persisted(key=key):
                _, then = state.pending.pop(key)
                state.storage_full = "" if not state.unsaved else state.storage_full
                return then(state, now)
            case Failed(key=key, reason=reason) if key in state.pending:
                state.unsaved.add(key)
                state.storage_full = reason
                return [Note("alarm", {"what": "state cannot be written; dispatch pauses", "reason": reason})]
            case Finished() | Failed():
                return self._ended(now, told)
        return []

    def _receive(self, now: float, message: Any) -> list[Effect]:
        match message:
            case Directory(number=number) if number < self._directory:
                return []
            case Directory():
                return [
                    *self._membership.heard(message),
                    *intake.take_directory(self.state, now, message),
                    *runners.take_runners(self.state, now, message),
                ]
            case CellReport():
                return intake.take_cell_report(self.state, now, message)
            case GatewayReport():
                return [*intake.take_gateway_report(self.state, now, message), *watch_tool_calls(self.state, now)]
            case RunnerReport():
                effects = intake.take_runner_report(self.state, now, message)
                runners.claim(self.state, message)
                return [*effects, *runners.place_known(self.state, now)]
            case SaveNow():
                return saving.save_now(self.state, now)
        return []

    def _ended(self, now: float, told: Finished | Failed) -> list[Effect]:
        """Those without a case of their own may fail: a status is written again, what was not forgotten costs memory, and a warm
        start that is not in the cache is fitted again by the next run."""
        state = self.state
        if isinstance(told, Failed):
            state.resting.add(told.key)
        else:
            state.running_actions.discard(told.key)
        match told.key:
            case planning.PREPARE:
                return planning.prepared(state, now, told)
            case consolidation.FIND_CHECKPOINT:
                return consolidation.found_checkpoint(state, now, told)
            case phases.FIND_WARM:
                return phases.found_warm_start(state, now, told)
            case phases.PREPARE_WARM:
                return phases.prepared_warm(state, now, told)
            case satellites.KEEP:
                return state.satellites.told(now, told)
            case phases.LAST_STATUS:
                state.is_written = True
                return [phases.say_finished(state)]
        if isinstance(told, Failed):
            return [Note("alarm", {"what": f"{told.key} failed", "kind": told.kind, "reason": told.reason})]
        return []

    def _tick(self, now: float) -> list[Effect]:
        """What only time can bring."""
        state, settings = self.state, self.state.settings
        if state.finished:
            return [phases.say_finished(state)] if state.is_written else []
        effects: list[Effect] = []
        if overslept_s := self.awake.overslept_s(now):
            put_off(state, now, overslept_s)
            effects.append(Note("stood_still", {"seconds": overslept_s}))
        for cell in state.fleet.cells.values():
            if watchdog.is_silent(state, cell, now):
                effects += intake.lose_cell(state, now, cell, f"silent for {settings.silence_s:g} s")
            elif reason := watchdog.starts_late(state, cell, now):
                effects += intake.lose_cell(state, now, cell, reason)
            elif reason := watchdog.hangs(state, cell, now):
                effects += intake.lose_stuck(state, now, cell, reason)
            elif cell.lost and not cell.aside and now - cell.asked_at > 2 * settings.resend_s:
                effects.append(intake.ask_restart(cell, now))
        for cell in state.fleet.cells.values():
            effects += watchdog.watch_weights(state, cell, now)
        effects += watch_late(state, now)
        effects += [Persist(key, record) for key, (record, _) in state.pending.items() if key in state.unsaved]
        state.unsaved.clear()
        state.running_actions -= state.resting
        state.resting.clear()
        effects += watch_executions(state, now) or watch_units(state, now)
        if now - state.progress_at > settings.progress_deadline_s:
            effects += phases.finish(state, now, 1, f"no progress for {settings.progress_deadline_s:g} s in phase {state.phase.value}")
        return effects

    def _step(self, now: float) -> list[Effect]:
        """Move on in everything, as far as the facts allow."""
        state = self.state
        effects = consolidation.look_for_checkpoint(state)
        effects += phases.advance_phase(state, now)
        if state.finished:
            return effects
        if state.is_settled:
            effects += planning.choose(state)
            effects += planning.prepare(state, now)
            effects += consolidation.consolidate(state, now)
            effects += self._lend(now)
            effects += planning.lease(state, now)
        effects += state.satellites.ask(now)
        if state.phase not in EVALUATIONS or phases.may_evaluate(state):
            effects += planning.dispatch(state, now)
        effects += send_all(state, now) + saving.tell_when_over(state, now)
        if now - state.status_at >= state.settings.status_s and STATUS not in state.running_actions:
            state.status_at = now
            state.running_actions.add(STATUS)
            effects.append(Start(STATUS, WriteStatus(status_of(state, now))))
        return effects

    def _lend(self, now: float) -> list[Effect]:
        state = self.state
        if state.phase not in (Phase.training, *EVALUATIONS):
            return []
        state.lending.carry_on(now, state.fleet, state.batch, partial(is_known, state, now), partial(kv_order, state))
        facts = facts_of(
            now,
            settings=state.settings,
            fleet=state.fleet,
            groups=state.groups,
            batch=state.batch,
            commit=state.commit,
            lending=state.lending,
            evaluating=state.phase is not Phase.training,
            gate_closed=planning.gate_closed(state),
        )
        decision = decide(facts, state.settings.scheduler)
        effects: list[Effect] = []
        old = state.decision
        state.decision = decision
        calls_waiting = sum(report.waiting_calls for report in state.gateways.values())
        state.satellites.observe(now, facts, decision, calls_waiting, state.settings.total_groups - state.groups.begun["train"])
        if old is None or (old.want, old.reason) != (decision.want, decision.reason):
            level = decision.waterlevel
            effects.append(
                Note(
                    "decision",
                    {
                        "want": decision.want, "reason": decision.reason, "forced": decision.forced, "training": facts.training,
                        "cells": facts.cells, "live": level.live, "marginal": level.marginal, "ready": level.ready,
                        "cells_needed": level.cells_needed, "theta": level.theta, "waiting": facts.micro_batches_waiting,
                        "ready_work_s": facts.ready_work_s, "update": state.update,
                    },
                )
            )  # fmt: skip
        if state.commit is None:
            effects += state.lending.follow(now, decision, state.fleet, state.batch, next_table(state))
        return effects


def _is_deed(effect: Effect) -> bool:
    return not isinstance(effect, Send | SetTimer) and not (isinstance(effect, Start) and effect.key == STATUS)
