"""Cells in trouble: weights that do not arrive, engines that do not work, starts that fail, and for whose sake."""

from typing import Any

import msgspec

from gyre_hpc.machines.base import Effect, Note, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.fleet import Move
from gyre_hpc.machines.batch.intake import lose_cell
from gyre_hpc.machines.batch.status import status_of, waits_of
from gyre_hpc.machines.batch.watchdog import starts_late
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.supervision import Directory, Entry, RestartCell, SetAside
from gyre_hpc.protocol.to_batch import CellState, RankMemory
from tests.fakes import batch_bench
from tests.fakes.batch_bench import CELLS, FIRST, HISTORY, machine, report, serving, tell


def alarms(effects: list[Effect]) -> list[dict[str, Any]]:
    return [effect.fields for effect in effects if isinstance(effect, Note) and effect.kind == "alarm"]


def told(effects: list[Effect], kind: type) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def tick(made: BatchMachine, now: float) -> list[Effect]:
    """A tick at which every cell was just heard."""
    for cell in made.state.fleet.cells.values():
        cell.heard_at = now
    return batch_bench.tick(made, now)


def directory(made: BatchMachine, now: float, **entries: tuple[int, str]) -> list[Effect]:
    """`cell_1=(incarnation, why it is lost)`; the others are as they were."""
    number = int(now * 100)
    known = {name: (1, "") for name in CELLS} | {name.replace("_", "-"): entry for name, entry in entries.items()}
    return tell(made, now, Directory(number, tuple(Entry(name, n, "" if lost else name, lost) for name, (n, lost) in known.items())))


# weights


def stale(made: BatchMachine, newest: int = 2) -> None:
    made.state.version = Version(0, newest)
    made.state.batch.update = newest
    seen = made.state.fleet.cells["cell-1"].report
    assert seen is not None
    made.state.fleet.cells["cell-1"].report = msgspec.structs.replace(seen, error="pull of snapshot 0.2: nobody answers")


def test_a_cell_that_serves_beyond_the_bound_is_an_alarm_once_and_goes_on_serving() -> None:
    made = serving()
    stale(made)
    assert not alarms(tick(made, 1.0)), "it may be a moment behind"
    found = [alarm for second in range(2, 40) for alarm in alarms(tick(made, float(second)))]
    mine = [alarm for alarm in found if alarm.get("cell") == "cell-1"]
    assert len(mine) == 1 and mine[0]["version"] == "0.0" and "nobody answers" in mine[0]["reason"]
    assert any("cell-1" in sentence for sentence in made.state.alarms), "status shows it"
    assert made.state.fleet.cells["cell-1"].is_serving


def test_within_the_bound_there_is_no_alarm() -> None:
    made = serving()
    stale(made, newest=1)
    assert not [alarm for second in range(40) for alarm in alarms(tick(made, float(second)))]


def test_a_second_episode_is_another_alarm() -> None:
    made = serving()
    stale(made)
    cell = made.state.fleet.cells["cell-1"]
    count = 0
    for second in range(1, 30):
        seen = cell.report
        assert seen is not None
        cell.report = msgspec.structs.replace(seen, version=Version(0, 2) if second == 12 else FIRST)
        count += sum(alarm.get("cell") == "cell-1" for alarm in alarms(tick(made, float(second))))
    assert count == 2


# engines


def broken(made: BatchMachine, now: float, why: str) -> None:
    cell = made.state.fleet.cells["cell-1"]
    assert cell.report is not None
    seq = cell.report.seq + 1
    tell(made, now, report("cell-1", seq, term=cell.term, error=why, broken=why))


def test_a_serving_cell_that_does_not_work_for_long_is_started_again() -> None:
    made = serving(broken_deadline_s=10.0)
    restarts: list[RestartCell] = []
    for second in range(1, 30):
        broken(made, float(second), "look at the cell: CellLost: rank 1 does not answer")
        restarts += told(tick(made, float(second)), RestartCell)
        if restarts:
            break
    assert restarts[0].cell == "cell-1" and "rank 1 does not answer" in restarts[0].reason
    assert 10 < second < 13
    assert not made.state.fleet.cells["cell-1"].in_table


def test_trouble_that_passes_is_no_reason_to_start_a_cell_again() -> None:
    made = serving(broken_deadline_s=10.0)
    for second in range(1, 60):
        broken(made, float(second), "look at the cell: TimeoutError" if second % 9 else "")
        assert not told(tick(made, float(second)), RestartCell)


def test_a_cell_whose_pull_fails_is_not_started_again_for_it() -> None:
    made = serving(broken_deadline_s=5.0, progress_deadline_s=1e9)
    stale(made)
    assert not [order for second in range(1, 60) for order in told(tick(made, float(second)), RestartCell) if order.cell == "cell-1"]


# starts


def fail_starts(made: BatchMachine, name: str, count: int) -> list[Effect]:
    """Each start is seen, and ends before it reported a role."""
    effects: list[Effect] = []
    first = made.state.fleet.cells[name].incarnation + 1
    for incarnation in range(first, first + count):
        now = 10.0 + incarnation
        directory(made, now, **{name.replace("-", "_"): (incarnation, "")})
        effects = directory(made, now + 0.5, **{name.replace("-", "_"): (incarnation, "exit code 1")})
    return effects


def test_a_cell_that_fails_three_starts_of_its_own_is_set_aside_and_the_run_goes_on() -> None:
    made = serving()
    effects = fail_starts(made, "cell-1", 3)
    (aside,) = told(effects, SetAside)
    assert aside.cell == "cell-1" and "3 failed starts; last: exit code 1" in aside.reason
    assert not made.state.finished and not told(tick(made, 20.0), RestartCell)
    cells = status_of(made.state, 20.0)["cells"]
    assert [cell["aside"] for cell in cells] == ["", aside.reason, ""]


def test_a_start_that_worked_ends_the_row() -> None:
    made = serving()
    fail_starts(made, "cell-1", 2)
    directory(made, 15.0, cell_1=(4, ""))
    tell(made, 15.1, report("cell-1", 1, incarnation=4, term=0))
    directory(made, 15.5, cell_1=(4, "killed by signal -9"))
    assert made.state.fleet.cells["cell-1"].failed_starts == 0


def test_what_died_while_the_controller_was_away_was_no_failed_start() -> None:
    made, _ = machine(*HISTORY)
    effects = directory(made, 0.1, cell_1=(5, "killed by signal -9"))
    assert [order.cell for order in told(effects, RestartCell)] == ["cell-1"]
    assert made.state.fleet.cells["cell-1"].failed_starts == 0
    directory(made, 0.2, cell_1=(6, ""))
    directory(made, 0.3, cell_1=(6, "exit code 1"))
    assert made.state.fleet.cells["cell-1"].failed_starts == 1, "this one was its own"


def test_a_cell_that_is_there_again_before_its_loss_was_heard_of_is_left_alone() -> None:
    made = serving()
    cell = made.state.fleet.cells["cell-1"]
    made.state.batch.ledger.add("0:9", 10, 10)
    made.state.batch.ledger.lease("cell-1", 1)
    fence = cell.fence
    effects = directory(made, 5.0, cell_1=(2, ""))
    assert not told(effects, RestartCell) and not cell.lost and cell.failed_starts == 0
    assert cell.fence > fence and not made.state.batch.ledger.leased("cell-1"), "what the old one held is void"
    assert not told(tick(made, 6.0), RestartCell)


def test_a_satellite_that_waits_for_weights_nobody_has_is_not_late() -> None:
    made = serving()
    state, cell = made.state, made.state.fleet.cells["cell-1"]
    assert cell.report is not None
    cell.report = msgspec.structs.replace(cell.report, state=CellState.starting, snapshots=())
    for name in ("cell-0", "cell-2"):
        other = state.fleet.cells[name]
        assert other.report is not None
        other.report = msgspec.structs.replace(other.report, snapshots=())
    late = cell.started_at + 10 * state.settings.start_deadline_s
    assert not starts_late(state, cell, late)
    tell(made, late, report("cell-0", 2, term=state.fleet.core.term))
    assert not starts_late(state, cell, late + 1)
    assert starts_late(state, cell, late + state.settings.start_deadline_s + 1), "the core can give them now"


def test_a_cell_that_is_late_is_lost_with_what_it_said_went_wrong() -> None:
    made = serving()
    cell = made.state.fleet.cells["cell-1"]
    assert cell.report is not None
    cell.report = msgspec.structs.replace(cell.report, state=CellState.starting, error="load_checkpoint: shapes differ")
    late = cell.started_at + made.state.settings.start_deadline_s + 1
    cell.heard_at = late
    lost = [effect.fields for effect in tick(made, late) if isinstance(effect, Note) and effect.kind == "cell_lost"]
    assert [fields["reason"] for fields in lost if fields["cell"] == "cell-1"] == [
        "not started within 120 s: load_checkpoint: shapes differ"
    ]


def test_a_cell_set_aside_stays_so_for_the_next_controller() -> None:
    made, _ = machine(*HISTORY)
    entries = tuple(Entry(name, 1, name) for name in CELLS if name != "cell-1")
    aside = Entry("cell-1", 3, "", "set aside: 3 failed starts", True)
    effects = tell(made, 0.1, Directory(1, (*entries, aside)))
    assert not told(effects, RestartCell) and not told(tick(made, 9.0), RestartCell)
    assert made.state.fleet.cells["cell-1"].aside == "set aside: 3 failed starts"
    assert not [wait for wait in waits_of(made.state, 9.0) if "cell-1" in wait["reason"]]


def test_the_core_is_never_set_aside_but_a_run_whose_core_never_starts_ends_with_the_reason() -> None:
    made = serving()
    limit = made.state.settings.max_failed_starts_of_core
    assert not told(fail_starts(made, "cell-0", limit - 1), SetAside)
    assert not made.state.finished
    fail_starts(made, "cell-0", 1)
    assert made.state.finished and made.state.exit_code == 1
    assert f"cell-0, the core, failed {limit} starts in a row; last: exit code 1" in made.state.reason


def test_a_core_that_worked_may_be_lost_as_often_as_it_takes() -> None:
    made = serving()
    for incarnation in range(2, 30):
        directory(made, float(incarnation), cell_0=(incarnation, ""))
        tell(made, incarnation + 0.1, report("cell-0", 1, incarnation=incarnation))
        lose_cell(made.state, incarnation + 0.2, made.state.fleet.core, "killed")
    assert not made.state.finished


def get_stuck(made: BatchMachine, incarnation: int, name: str = "cell-0") -> list[Effect]:
    """A cell that starts, has weights, and whose role change is never done."""
    now, cell = 1000.0 * incarnation, made.state.fleet.cells[name]
    made.state.moved_on(now)
    directory(made, now, **{name.replace("-", "_"): (incarnation, "")})
    tell(made, now + 0.1, report(name, 1, incarnation=incarnation, term=cell.term))
    cell.move = Move.ordered
    for other in made.state.fleet.cells.values():
        other.heard_at = now
    return tick(made, now + 0.2) + tick(made, now + made.state.settings.switch_deadline_s + 1.0)


def test_a_run_whose_core_gets_stuck_in_every_start_ends_with_the_reason_though_it_loads_weights_each_time() -> None:
    made = serving(switch_deadline_s=20.0)
    limit = made.state.settings.max_stuck_starts
    for incarnation in range(2, limit + 1):
        get_stuck(made, incarnation)
        assert made.state.fleet.core.lost and not made.state.finished
    get_stuck(made, limit + 1)
    assert made.state.finished and made.state.exit_code == 1
    assert f"cell-0, the core, got stuck in {limit} starts in a row; last: role change not done within 20 s" in made.state.reason


def test_a_satellite_that_gets_stuck_in_every_start_is_set_aside_and_the_run_goes_on() -> None:
    made = serving(switch_deadline_s=20.0, silence_s=1e6)
    limit = made.state.settings.max_stuck_starts
    for incarnation in range(2, limit + 1):
        assert not told(get_stuck(made, incarnation, "cell-1"), SetAside)
    (order,) = told(get_stuck(made, limit + 1, "cell-1"), SetAside)
    assert order.cell == "cell-1" and f"stuck in {limit} starts in a row; last: role change not done within 20 s" in order.reason
    assert not made.state.finished and made.state.fleet.cells["cell-1"].aside == order.reason


def test_a_core_that_gets_stuck_now_and_then_goes_on() -> None:
    made = serving(switch_deadline_s=20.0)
    for incarnation in range(2, 20):
        get_stuck(made, incarnation)
        made.state.batch.update = incarnation % 2
    assert not made.state.finished


# what people see


def test_a_role_change_that_gets_nowhere_says_why_and_until_when() -> None:
    made = serving(switch_deadline_s=20.0)
    cell = made.state.fleet.cells["cell-1"]
    cell.move = Move.ordered
    why = "sleep_engine: rank 1 uses 500 bytes while its engine sleeps; the limit is 100 (trainer.memory_limit_mb)"
    tell(made, 1.0, report("cell-1", 2, state=CellState.switching, term=cell.term, error=why))
    tick(made, 1.0)
    (wait,) = [wait for wait in waits_of(made.state, 6.0) if wait["owner"] == "cell-1"]
    assert why in wait["reason"] and wait["left_s"] == 15.0
    restarts = told(tick(made, 22.0), RestartCell)
    assert restarts[0].cell == "cell-1" and "rank 1 uses 500 bytes" in restarts[0].reason


def test_status_has_the_memory_of_every_rank_before_and_after() -> None:
    made = serving()
    after = {"wake_engine": (RankMemory(0, 1, 9), RankMemory(1, 1, 9)), "sleep_engine": (RankMemory(0, 8, 2), RankMemory(1, 8, 2))}
    tell(made, 1.0, report("cell-1", 2, term=made.state.fleet.cells["cell-1"].term, memory_after=after))
    (cell,) = [cell for cell in status_of(made.state, 1.0)["cells"] if cell["name"] == "cell-1"]
    assert cell["memory"] == {"wake_engine": [[0, 1, 9], [1, 1, 9]], "sleep_engine": [[0, 8, 2], [1, 8, 2]]}
