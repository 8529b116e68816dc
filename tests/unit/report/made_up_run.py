"""A run folder made of nothing but files: known times, known numbers."""

from pathlib import Path
from typing import Any

import msgspec

from gyre_hpc.config.run_folder import RunFolder
from gyre_hpc.config.schema import Config
from gyre_hpc.config.stored import store_config
from gyre_hpc.observability.events import Event
from gyre_hpc.observability.status import CellStatus, GatewayStatus, RunnerStatus, Status, WaitStatus, WaterlevelStatus, write_status

START = 1_700_000_000.0
TOKENS = {"sampled": 5000, "eval_sampled": 900, "warm_sampled": 700, "unreceived": 3, "reprefilled": 11}


class Tape:
    """Events of one process on a clock of its own."""

    def __init__(self, process: str, attempt: int = 1) -> None:
        self.process, self.attempt = process, attempt
        self.lines: list[bytes] = []

    def note(self, at: float, kind: str, **fields: Any) -> None:
        """`at`: seconds since the start of the run."""
        self.lines.append(msgspec.json.encode(Event(START + at, at, self.process, self.attempt, kind, fields)) + b"\n")

    def write(self, folder: RunFolder) -> None:
        path = folder.events(self.process, self.attempt)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(self.lines))


def make_run(root: Path, *, updates: int = 3, num_cells: int = 4, finished: bool = True) -> RunFolder:
    """Each update takes 20 s: at 5 s cell-1 is lent for 8 s, all 4 groups become ready, at 18 s the update is applied."""
    folder = RunFolder(root)
    store_config(Config(seed=7), folder.config)
    tape = Tape("controller")
    tape.note(0, "attempt_started", attempt=1, records=0)
    for number in range(num_cells):
        tape.note(0, "cell_state", cell=f"cell-{number}", state="starting", reason="starting", term=0)
        tape.note(4, "cell_state", cell=f"cell-{number}", state="rollout", reason="", term=0)
    tape.note(4, "blind", passed=10, total=200, pass_rate=0.05)
    tape.note(5, "phase", phase="eval_before", update=0)
    tape.note(9, "evaluation", slot=0, version="0.0", passed=40, total=200, pass_rate=0.2)
    tape.note(10, "phase", phase="training", update=0)
    for update in range(updates):
        _update(tape, update, 10 + 20.0 * update)
    end = 10 + 20.0 * updates
    tape.note(end, "phase", phase="eval_after", update=updates)
    if finished:
        tape.note(end + 4, "evaluation", slot=updates, version=f"0.{updates}", passed=120, total=200, pass_rate=0.6)
        tape.note(end + 5, "run_finished", exit_code=0, reason="all updates made", update=updates)
    tape.write(folder)
    runner = Tape("runner-0")  # its own view of the same end must not count twice
    runner.note(12, "execution_ended", execution="train-0-0-0", state="scored", score=0.5, reason="")
    runner.write(folder)
    cells = Tape("cell-1")
    cells.note(2, "cpu", cpu_s=1.0, children_s=0.0)
    cells.note(6, "cpu", cpu_s=3.0, children_s=0.0)
    cells.note(8, "cpu", cpu_s=0.5, children_s=0.0)  # a new incarnation
    cells.write(folder)
    write_status(folder.status, _status(updates, num_cells))
    for name, whole in (("0.1", True), ("0.2", True), ("0.10", True), ("1.3", False)):
        (folder.checkpoints / name).mkdir(parents=True)
        if whole:
            (folder.checkpoints / name / "DONE").touch()
    return folder


def _update(tape: Tape, update: int, at: float) -> None:
    for index in range(8):
        tape.note(at + index / 4, "execution_began", execution=f"train-{update}-0-{index}", purpose="train")
    tape.note(at + 5, "lend", cell="cell-1", reason="spare", forced=False)
    tape.note(at + 5, "cell_state", cell="cell-1", state="draining", reason="", term=1)
    tape.note(
        at + 6, "kv_moved", cell="cell-1", targets=["cell-2"], conversations=3, of=4, tokens=100, seconds=0.25, trouble="no room"
    )  # fmt: skip
    tape.note(at + 6, "kv_stays", cell="cell-1", conversations=2, reason="prefill is faster")
    tape.note(at + 6, "switch", cell="cell-1", term=1, direction="rollout_to_train", steps={"drain": 0.4, "sleep": 0.1 * (update + 1)})
    tape.note(at + 6, "cell_state", cell="cell-1", state="train", reason="waits_for_groups", term=1)
    tape.note(at + 8, "cell_state", cell="cell-1", state="train", reason="", term=1)
    for index in range(8):
        state = "partial" if index == 7 else "scored"
        tape.note(
            at + 6 + index / 2, "execution_ended", execution=f"train-{update}-0-{index}", state=state, score=0.5, passed=index < 2 + update,
            reason="", wall_s=4.0, purpose="train",
        )  # fmt: skip
    for group in range(4):
        tape.note(
            at + 10 + group, "group_ready", group=f"train-{update}-{group}", update=update, micro_batches=[f"{update}:{group}"], tokens=100,
            executions=2, branching=1, trained_tokens=50, staleness=min(update, 1), trajectories=3, mean_score=0.5,
            passed=min(update, 4), size=4, batch_groups=group + 1,
        )  # fmt: skip
        tape.note(
            at + 11 + group, "micro_batch_accumulated", id=f"{update}:{group}", cell="cell-1" if group else "cell-0", update=update, seconds=0.5,
            targets=50, gap=1e-6 * (group + 1), on_policy=40, clipped=0, loss=0.1, satellite=group > 0, live=3, batch_full=False,
        )  # fmt: skip
    if update != 1:
        tape.note(at + 13, "recall", cell="cell-1", reason="needed")
    tape.note(at + 13, "cell_state", cell="cell-1", state="switching", reason="", term=2)
    tape.note(at + 14, "switch", cell="cell-1", term=2, direction="train_to_rollout", steps={"sleep": 0.2, "wake": 0.1})
    tape.note(at + 14, "cell_state", cell="cell-1", state="rollout", reason="tools_or_empty", term=2)
    tape.note(
        at + 18, "applied", update=update, version=f"0.{update + 1}", manifest_hash="x", executions=8, micro_batches=4, by_satellites=3,
        joined_mid_batch=1, grad_norm=0.5,
    )  # fmt: skip
    tape.note(at + 18, "version_published", version=f"0.{update + 1}", update=update)
    tape.note(at + 18, "cell_state", cell="cell-1", state="rollout", reason="", term=2)


def _status(updates: int, num_cells: int) -> Status:
    return Status(
        time=START + 60,
        experiment="quickstart",
        attempt=1,
        phase="training",
        update=updates,
        updates_total=updates,
        version=f"0.{updates}",
        pass_rate=0.41,
        pass_rates={"0": 0.2},
        waterlevel=WaterlevelStatus(live=5, marginal=0.4, ready=0.5, cells_needed=2, theta=0.25, want=1, reason="data pays"),
        cells=tuple(
            CellStatus(name=f"cell-{number}", role="rollout", state="rollout", version="0.3", is_core=number == 0, live=3, cpu_s=9.0)
            for number in range(num_cells)
        ),
        executions={"running": 5, "queued": 1, "scored": 21, "partial": 3},
        gateways={"gateway-0": GatewayStatus(live=4, waiting=2, tokens=TOKENS, cpu_s=5.0)},
        runners={"runner-0": RunnerStatus(running=5, queued=1, cpu_s=2.0, harness_cpu_s=30.0)},
        totals={"sampled_train": 5000, "sampled_eval": 900, "sampled_warm": 700},
        tokens_per_s=123.4,
        progress=0.5,
        eta_s=65.0,
        waits=(WaitStatus(owner="runner", reason="batch of update 3", deadline=START + 90),),
    )
