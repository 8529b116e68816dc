"""status.json keeps everything that the batch machine says and that summary.json needs."""

import asyncio
from pathlib import Path
from typing import Any

from gyre_hpc.control.status import StatusWriter
from gyre_hpc.machines.batch.actions import WriteStatus
from gyre_hpc.observability.status import read_status


def said(**changed: Any) -> dict[str, Any]:
    """What machines/batch/status.py gives."""
    return {
        "phase": "training",
        "update": 3,
        "updates_total": 12,
        "version": "0.3",
        "pass_rates": {"0": 0.2},
        "waterlevel": {"live": 5, "marginal": 0.4, "ready": 0.5, "cells_needed": 2, "theta": 0.25, "want": 1, "reason": "data pays"},
        "cells": [
            {"name": "cell-0", "role": "train", "activity": "train:waits_for_groups", "term": 4, "version": "0.3", "core": True, "live": 0,
             "tokens": {"sampled": 70}, "cpu_s": 9.5, "memory": {"sleep_engine": [[0, 1, 2]]}, "error": "",
             "pids": [7], "engine_pids": [8, 9], "lost": "", "aside": ""},
        ],
        "executions": {"live": 5, "begun": {"train": 30}, "scored": 20, "partial": 1},
        "batch": {"groups": 2, "of": 12, "full": False, "reason": "groups", "waiting": 1, "micro_batches": 4},
        "gateways": {"gateway-0": {"live": 3, "waiting": 1, "tokens": {"lost": 0, "unreceived": 2}, "cpu_s": 4.0}},
        "runners": {"runner-0": {"running": 5, "queued": 2, "cpu_s": 1.0, "harness_cpu_s": 20.0}},
        "totals": {"sampled_train": 700, "calls_continued_elsewhere": 4},
        "train_pass_rate": 0.41,
        "alarms": ["look here"],
        "reason": "",
        "waits": [{"owner": "runner", "reason": "batch of update 3", "left_s": 20.0}],
        "trial": {},
        "fit_progress": 0.0,
        **changed,
    }  # fmt: skip


def write(path: Path, raw: dict[str, Any]) -> None:
    asyncio.run(StatusWriter(path, experiment="quickstart", attempt=2).write("status", WriteStatus(raw), lambda item: None))


def test_counts_of_gateways_runners_and_totals_arrive(tmp_path: Path):
    write(tmp_path / "status.json", said())
    status = read_status(tmp_path / "status.json")
    assert status is not None
    assert (status.experiment, status.attempt, status.phase, status.pass_rate, status.pass_rates) == (
        "quickstart",
        2,
        "training",
        0.41,
        {"0": 0.2},
    )
    assert status.totals == {"sampled_train": 700, "calls_continued_elsewhere": 4}
    assert status.gateways["gateway-0"].tokens == {"lost": 0, "unreceived": 2}
    assert status.runners["runner-0"].harness_cpu_s == 20.0
    assert (status.waterlevel.want, status.waterlevel.theta, status.waterlevel.reason) == (1, 0.25, "data pays")
    (cell,) = status.cells
    assert (cell.state, cell.reason, cell.is_core, cell.cpu_s) == ("train", "waits_for_groups", True, 9.5)
    assert (cell.pids, cell.engine_pids) == ((7,), (8, 9))
    assert status.executions == {"running": 5, "scored": 20, "partial": 1}


def test_a_wait_has_a_deadline_on_the_clock_of_people(tmp_path: Path):
    write(tmp_path / "status.json", said())
    status = read_status(tmp_path / "status.json")
    assert status is not None
    assert abs(status.waits[0].deadline - status.time - 20.0) < 1e-6


def test_before_the_first_decision_there_is_a_status(tmp_path: Path):
    write(tmp_path / "status.json", said(waterlevel=None, phase="starting", cells=[]))
    status = read_status(tmp_path / "status.json")
    assert status is not None and status.waterlevel.live == 0


def test_a_run_that_is_over_says_why(tmp_path: Path):
    write(tmp_path / "status.json", said(phase="done", reason="8 executions in a row left no token to train on"))
    status = read_status(tmp_path / "status.json")
    assert status is not None and status.message == "8 executions in a row left no token to train on"
