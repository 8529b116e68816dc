"""What must hold after a whole run that was struck, from its files alone."""

import hashlib
from collections import defaultdict
from typing import Any

from gyre_hpc.machines.base import Received
from gyre_hpc.protocol.to_batch import CellReport
from gyre_hpc.trajectory.fold import JournalFold
from gyre_hpc.trajectory.segment import attempt_of, read_records
from tests.fakes.fresh_machines import lives
from tests.fakes.whole_run import WholeRun, unended

Said = dict[str, list[tuple[str, bytes, bytes, str]]]
"""By execution: (digest of the prompt, output ids, log-probs, finish) of each delivered call, sorted."""
ENDED_BY_THE_CELL = {"abort", "EngineBusy", "StaleMessage", "CellLost"}
"""Why a call may leave a cell: told at once, never by waiting for a gate to open again."""


def said_of(run: WholeRun) -> Said:
    """What every training execution was told, as the journal has it. Ordinals do not count: they are a matter of who came first."""
    fold, said = JournalFold(), defaultdict(list)
    for path in sorted(run.folder.journal.glob("*.gyj")):
        for record in read_records(path.read_bytes())[0]:
            fold.add(record, attempt_of(path))
    for execution in fold.executions():
        contexts: dict[str | None, bytes] = {None: b""}
        for call in fold.execution(execution) if execution.startswith("train-") else ():
            prompt = contexts[call.parent] + call.suffix_ids.tobytes()
            contexts[call.id] = prompt + call.output_ids.tobytes()
            assert call.delivered, f"{call.id} was not delivered"
            said[execution].append((hashlib.blake2b(prompt).hexdigest(), call.output_ids.tobytes(), call.logprobs.tobytes(), call.finish))
    return {execution: sorted(calls) for execution, calls in said.items()}


def expect_sound(run: WholeRun, updates: int, lost: tuple[str, ...] = ()) -> None:
    """The promises that hold under every fault; `lost`: cells that were struck, by name."""
    summary, events = run.summary(), run.events()
    assert (summary["exit_code"], summary["updates"], summary["attempts"]) == (0, updates, 1)
    assert (summary["tokens"]["lost"], summary["tokens"]["resampled"]) == (0, 0)
    assert not run.events("token_fault"), run.events("token_fault")
    assert not unended(events) and not run.events("execution_restarted")
    assert not run.events("call_failed")
    expect_nothing_parked(run)
    expect_nothing_rebuilt(run, lost)
    assert not run.processes()


def expect_nothing_parked(run: WholeRun) -> None:
    """No call waited at a cell whose gate was closed: it was told so, or aborted, at once. One that was parked would be taken away
    by the gateway (`gone`) or run into its deadline."""
    for event in run.events("call_rerouted"):
        assert event.fields["why"] in ENDED_BY_THE_CELL, event


def expect_nothing_rebuilt(run: WholeRun, lost: tuple[str, ...]) -> None:
    """Processes and communicators inside each cell, as its reports tell: the same from its first look to its last one."""
    seen: dict[tuple[str, int], set[tuple[tuple[int, ...], int]]] = defaultdict(set)
    for report in reports(run):
        if report.pids:
            seen[report.cell, report.incarnation].add((report.pids, report.groups_built))
    assert {cell for cell, incarnation in seen if incarnation > 1} <= set(lost), "a healthy cell was started again"
    assert len({cell for cell, _ in seen}) == len({event.fields["cell"] for event in run.events("cell_state")})
    for cell, built in seen.items():
        assert len(built) == 1, f"{cell}: {built}"


def reports(run: WholeRun) -> list[CellReport]:
    """Every report that the controller took in."""
    told: list[Any] = [one for life in lives(run.folder, "controller") for _, one, _ in life]
    return [one.message for one in told if isinstance(one, Received) and isinstance(one.message, CellReport)]


def expect_same_calls(run: WholeRun, reference: Said) -> None:
    """The same calls with the same tokens, and log-probs to the last bit, in every execution that the reference has."""
    said = said_of(run)
    for execution, calls in reference.items():
        assert said.get(execution) == calls, execution
