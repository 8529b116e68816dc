"""What people see while it runs: one plain dictionary for status.json, and every wait with its owner and deadline."""

from typing import Any

from gyre_hpc.machines.batch.fleet import Cell
from gyre_hpc.machines.batch.state import State
from gyre_hpc.machines.batch.trial import Phase, trial_of


def status_of(state: State, now: float) -> dict[str, Any]:
    """Plain values only; docs/formats.md names the keys."""
    decision = state.decision
    return {
        "phase": state.phase.value,
        "update": state.update,
        "updates_total": state.settings.updates,
        "version": str(state.version) if state.version is not None else "",
        "pass_rates": {str(slot): rate for slot, rate in state.pass_rates.items()},
        "waterlevel": None
        if decision is None
        else {
            "live": decision.waterlevel.live, "marginal": decision.waterlevel.marginal, "ready": decision.waterlevel.ready,
            "cells_needed": decision.waterlevel.cells_needed, "theta": decision.waterlevel.theta, "want": decision.want, "reason": decision.reason,
        },
        "cells": [
            {
                "name": cell.name, "role": cell.role.value, "activity": state.activities.get(cell.name, "starting:"), "term": cell.term,
                "version": str(cell.report.version) if cell.report is not None and cell.report.version is not None else "",
                "core": cell is state.fleet.core, "live": cell.report.live_requests if cell.report is not None else 0,
                "tokens": dict(cell.report.tokens) if cell.report is not None else {},
                "cpu_s": cell.report.cpu_s if cell.report is not None else 0.0,
                "memory": _memory(cell),
                "pids": list(cell.report.pids) if cell.report is not None else [],
                "engine_pids": list(cell.report.engine_pids) if cell.report is not None else [],
                "error": cell.report.error if cell.report is not None else "",
                "lost": cell.lost, "aside": cell.aside,
            }
            for cell in state.fleet.cells.values()
        ],
        "executions": {"live": len(state.groups.live), "begun": dict(state.groups.begun), **state.groups.counts},
        "batch": {
            "groups": len(state.batch.groups), "of": state.settings.groups_per_batch, "full": state.batch.full, "reason": state.batch.reason,
            "waiting": len(state.batch.ledger.waiting()), "micro_batches": len(state.batch.ledger),
        },
        "gateways": {name: {"live": report.live_calls, "waiting": report.waiting_calls, "tokens": dict(report.tokens), "cpu_s": report.cpu_s}
                     for name, report in state.gateways.items()},
        "runners": {name: {"running": len(report.running), "queued": len(report.queued), "cpu_s": report.cpu_s, "harness_cpu_s": report.harness_cpu_s}
                    for name, report in state.runners.items()},
        "totals": dict(state.totals),
        "train_pass_rate": state.train_pass_rate,
        "alarms": list(state.alarms),
        "reason": state.reason,
        "waits": waits_of(state, now),
        "trial": _trial(state),
        "fit_progress": state.totals.get("fit_progress", 0.0),
    }  # fmt: skip


def _memory(cell: Cell) -> dict[str, list[list[int]]]:
    """Step -> [rank, free, used] of every rank after it, bytes."""
    after = cell.report.memory_after if cell.report is not None else {}
    return {step: [[figure.rank, figure.free, figure.used] for figure in figures] for step, figures in after.items()}


def _trial(state: State) -> dict[str, int]:
    trial = trial_of(state.phase, state.settings.updates)
    if trial is None:
        return {}
    total = state.settings.warm_executions if trial[0] == "warm" else state.settings.eval_tasks
    groups = state.groups.of_purpose(*trial)
    return {"done": sum(group.is_complete for group in groups), "total": total}


def _move(state: State, cell: Cell, now: float) -> tuple[str, float]:
    """Reason and seconds left of a cell on its way to another role."""
    settings, trouble = state.settings, cell.report.error if cell.report is not None else ""
    reason = f"{cell.move.value} towards {cell.role.value}" + (f": {trouble}" if trouble else "")
    if cell.moving_since is not None:
        return reason, settings.switch_deadline_s - (now - cell.moving_since)
    return reason, settings.silence_s - (now - cell.heard_at)


def waits_of(state: State, now: float) -> list[dict[str, Any]]:
    """(owner, reason, seconds until its deadline) of everything that waits now."""
    settings = state.settings
    waits: list[dict[str, Any]] = []

    def wait(owner: str, reason: str, left_s: float) -> None:
        waits.append({"owner": owner, "reason": reason, "left_s": round(left_s, 1)})

    if state.phase is Phase.done:
        return waits
    wait("controller", f"progress in phase {state.phase.value}", settings.progress_deadline_s - (now - state.progress_at))
    if state.commit is not None:
        wait(state.fleet.core_name, f"commit of update {state.update}", settings.commit_deadline_s - (now - state.commit.started_at))
    if state.save_waits:
        wait(state.fleet.core_name, f"before the run is stopped: {state.save_waits}", state.save_until - now)
    for cell in state.fleet.cells.values():
        if cell.lost and not cell.aside:
            held = "; held until gyre debug --release" if cell.is_held else ""
            wait("supervisor", f"restart of {cell.name}: {cell.lost}{held}", settings.start_deadline_s)
        elif cell.move.value != "none":
            wait(cell.name, *_move(state, cell, now))
        elif cell.broken_since is not None and cell.report is not None:
            wait(cell.name, f"it does not work: {cell.report.broken}", settings.broken_deadline_s - (now - cell.broken_since))
    if state.satellites.refused:
        wait("slurm", f"satellites were refused: {state.satellites.refused}; asked again", state.satellites.next_at - now)
    if state.storage_full:
        wait("storage", state.storage_full, settings.progress_deadline_s - (now - state.progress_at))
    if state.is_without_runners:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in state.lost_runners.items())
        wait("runner", f"no runner is left ({reasons})", settings.progress_deadline_s - (now - state.progress_at))
    if state.phase is Phase.training and not state.batch.full:
        wait("runner", f"batch of update {state.update}: {state.batch.reason}", settings.hard_deadline_s)
    return waits
