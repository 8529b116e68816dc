"""The batch machine when nodes come and go: runners that are gone, cells that nobody planned."""

from gyre_hpc.machines.base import Effect, Note, Persist, Persisted, Send
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.records import LifeBegun
from gyre_hpc.machines.batch.status import status_of, waits_of
from gyre_hpc.protocol.supervision import Directory, Entry, RestartCell
from gyre_hpc.protocol.to_batch import Ended, RunnerReport, ScoreState
from gyre_hpc.protocol.to_cell import Order
from gyre_hpc.protocol.to_runner import Assignment
from tests.fakes.batch_bench import CELLS, GROUPS, acknowledge, report, serving, tell

EXECUTIONS = tuple(f"{id}-0" for id in GROUPS)
RUNNERS = ("runner-0", "runner-1")


def directory(number: int, *gone: str, more: tuple[Entry, ...] = ()) -> Directory:
    known = tuple(Entry(name, 1, name) for name in (*CELLS, "gateway-0"))
    runners = tuple(Entry(name, 1, name, "its node is lost" if name in gone else "", name in gone) for name in RUNNERS)
    return Directory(number, (*known, *runners, *more))


def from_runner(name: str, seq: int, *running: str, ended: tuple[Ended, ...] = (), seen: int = -1) -> RunnerReport:
    return RunnerReport(name, 1, seq, seen, running, (), ended, capacity=4)


def assigned(effects: list[Effect]) -> dict[str, set[str]]:
    documents = {e.to: e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Assignment)}
    return {runner: {begin.execution for begin in document.begin} for runner, document in documents.items()}


def taken_up(effects: list[Effect]) -> set[str]:
    return {e.record.execution for e in effects if isinstance(e, Persist) and isinstance(e.record, LifeBegun)}


def with_runners() -> tuple[BatchMachine, dict[str, set[str]]]:
    """Two runners, and what each of them has."""
    made = serving(runners=RUNNERS)
    tell(made, 0.2, directory(2))
    tell(made, 0.3, from_runner("runner-0", 1))
    tell(made, 0.3, from_runner("runner-1", 1))
    theirs: dict[str, set[str]] = {name: set() for name in RUNNERS}
    for execution, runner in made.state.assignments.items():
        theirs[runner].add(execution)
    assert all(theirs.values())
    return made, theirs


def test_executions_of_a_runner_that_is_gone_go_on_elsewhere() -> None:
    made, theirs = with_runners()
    effects = tell(made, 1.0, directory(3, "runner-1"))
    assert taken_up(effects) == theirs["runner-1"]
    assert not made.state.recently_ended, "their gateways go on with them"
    for effect in [e for e in effects if isinstance(e, Persist)]:
        effects = made.handle(1.1, Persisted(effect.key))
    wanted = {execution for execution, runner in made.state.assignments.items() if runner == "runner-0"}
    assert wanted == theirs["runner-0"] | theirs["runner-1"]
    assert made.state.groups.lives == dict.fromkeys(theirs["runner-1"], 1)
    assert not taken_up(tell(made, 2.0, directory(4, "runner-1"))), "once"


def test_a_runner_that_is_gone_has_nothing_to_say_and_gives_no_room() -> None:
    made, theirs = with_runners()
    tell(made, 1.0, directory(3, "runner-1"))
    (one, *_) = sorted(theirs["runner-1"])
    tell(made, 1.1, from_runner("runner-1", 2, ended=(Ended(one, ScoreState.scored, 1.0),)))
    assert "runner-1" not in made.state.runners
    assert not made.state.groups.of(one).ended  # type: ignore[union-attr]


def test_an_end_that_is_on_its_way_to_the_disk_is_no_other_life() -> None:
    made, theirs = with_runners()
    (one, *rest) = sorted(theirs["runner-1"])
    tell(made, 1.0, from_runner("runner-1", 2, ended=(Ended(one, ScoreState.scored, 1.0),)))
    assert taken_up(tell(made, 1.1, directory(3, "runner-1"))) == set(rest)


def test_without_any_runner_the_wait_has_a_name() -> None:
    made, _ = with_runners()
    effects = tell(made, 1.0, directory(3, *RUNNERS))
    assert "no runner is left" in [e.fields["what"] for e in effects if isinstance(e, Note) and e.kind == "alarm"]
    assert any("no runner is left" in wait["reason"] for wait in waits_of(made.state, 1.0))


def test_another_controller_leaves_executions_with_the_runner_that_has_them() -> None:
    made = serving(runners=RUNNERS)
    tell(made, 0.2, directory(2))
    tell(made, 0.3, from_runner("runner-0", 1, EXECUTIONS[0]))
    assert made.state.assignments == {EXECUTIONS[0]: "runner-0"}, "the others may be on the runner that was not heard yet"
    tell(made, 0.4, from_runner("runner-1", 1, EXECUTIONS[1], EXECUTIONS[2]))
    of = made.state.assignments
    assert [of[one] for one in EXECUTIONS[:3]] == ["runner-0", "runner-1", "runner-1"] and EXECUTIONS[3] in of


def test_what_no_runner_has_goes_on_where_one_of_them_is_gone() -> None:
    made = serving(runners=RUNNERS)
    tell(made, 0.2, directory(2, "runner-1"))
    effects = tell(made, 0.3, from_runner("runner-0", 1, EXECUTIONS[0]))
    assert taken_up(effects) == set(EXECUTIONS[1:])


def test_a_cell_that_nobody_planned_serves_and_is_never_the_core() -> None:
    made = serving()
    joined = Entry("cell-7", 1, "cell-7")
    tell(made, 1.0, directory(2, more=(joined, Entry("supervisor-j7n0", 1, "s"))))
    effects = tell(made, 1.1, report("cell-7", 1, term=made.state.settings.number_base))
    orders = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Order) and e.to == "cell-7"]
    assert [order.is_core for order in orders] == [False]
    acknowledge(made, 1.2, 2)
    assert "cell-7" in [row.cell for row in made.state.table_rows[0]]
    assert "cell-7" in [cell["name"] for cell in status_of(made.state, 1.2)["cells"]]
    assert "supervisor-j7n0" not in made.state.fleet.cells


def test_a_cell_that_left_with_its_node_is_voided_and_not_ordered_again() -> None:
    made = serving()
    joined = Entry("cell-7", 1, "cell-7")
    tell(made, 1.0, directory(2, more=(joined,)))
    tell(made, 1.1, report("cell-7", 1, term=made.state.settings.number_base))
    fence = made.state.fleet.cells["cell-7"].fence
    effects = tell(made, 2.0, directory(3, more=(Entry("cell-7", 1, "", "its node is lost", True),)))
    assert made.state.fleet.cells["cell-7"].fence > fence
    assert not [e for e in effects if isinstance(e, Send) and isinstance(e.message, RestartCell)]
    assert "cell-7" not in [row.cell for row in made.state.table_rows[0]]
    assert "cell-7" not in {e.to for e in tell(made, 3.0, directory(4)) if isinstance(e, Send)}


def test_a_cell_that_only_begins_to_join_holds_nothing_back() -> None:
    made = serving()
    tell(made, 1.0, directory(2, more=(Entry("cell-7", 1),)))
    assert made.state.fleet.is_known(), "it serves nothing yet"
    tell(made, 1.1, directory(3, more=(Entry("cell-7", 1, "cell-7"),)))
    assert not made.state.fleet.is_known(), "it may serve something older"
    tell(made, 1.2, report("cell-7", 1, term=made.state.settings.number_base))
    assert made.state.fleet.is_known()
