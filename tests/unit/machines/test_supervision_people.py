"""Orders of people, told to the supervision machine."""

import pytest

from gyre_hpc.machines.base import Effect, Failed, Finished, Note, Received, SetTimer, Start, TimerFired
from gyre_hpc.machines.supervision import DumpStacks, ReadCommands, SpawnProcess, TerminateProcess, WriteAnswer
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.protocol.supervision import FinishRun, RestartCell
from tests.unit.machines.test_supervision import Bench, actions, live_bench

ATTEMPT = 3


def wish(kind: CommandKind, process: str = "", attempt: int = ATTEMPT) -> Command:
    return Command(f"1-{kind.value}-{process}", Wish(kind, attempt, process, "why"))


def read(bench: Bench, *commands: Command | Unreadable) -> list[Effect]:
    return bench.tell(Finished("commands", commands))


def answers(effects: list[Effect]) -> list[Answer]:
    return [action.answer for action in actions(effects, WriteAnswer)]


def test_the_folder_is_looked_at_from_the_start_on_and_again_after_each_look_also_while_the_run_ends():
    bench = Bench()
    assert len(actions(bench.effects, ReadCommands)) == 1
    for _ in range(2):
        effects = read(bench)
        assert [e.after_s for e in effects if isinstance(e, SetTimer) and e.key == "commands"] == [2.0]
        assert actions(bench.tell(TimerFired("commands")), ReadCommands)
        bench.tell(Received("supervisor-0", FinishRun(130, "enough")))


def test_stop_ends_the_run_as_told_to_stop_and_a_second_one_is_answered_too():
    bench = live_bench()
    effects = read(bench, wish(CommandKind.stop))
    assert [answer.is_done for answer in answers(effects)] == [True]
    assert [e.fields["exit_code"] for e in effects if isinstance(e, Note) and e.kind == "run_finishing"] == [130]
    again = read(bench, Command("2-b", Wish(CommandKind.stop, ATTEMPT)))
    assert answers(again)[0].is_done and "already" in answers(again)[0].text


def test_a_stop_of_a_run_that_an_allocation_ends_already_is_what_its_end_is_remembered_by():
    bench = live_bench()
    bench.tell(Received("supervisor-0", FinishRun(130, "SIGTERM")))
    assert [(answer.is_done, answer.kind, answer.text) for answer in answers(read(bench, wish(CommandKind.stop)))] == [
        (True, "stop", "it was ending already: SIGTERM")
    ]
    read(bench, Command("2-b", Wish(CommandKind.stop, ATTEMPT, "", "another")))
    finish = bench.machine._ending.finish
    assert finish == FinishRun(130, "why, while it was ending: SIGTERM")


def test_a_stop_does_not_change_how_a_run_ends_that_failed_or_is_done():
    bench = live_bench()
    bench.tell(Received("controller", FinishRun(0, "all updates made")))
    read(bench, wish(CommandKind.stop))
    assert bench.machine._ending.finish == FinishRun(0, "all updates made")


def test_an_order_that_comes_by_message_and_by_file_is_carried_out_once():
    bench = live_bench()
    stacks = wish(CommandKind.stacks, "gateway-0")
    assert len(actions(bench.tell(Received("gyre", stacks)), DumpStacks)) == 1
    bench.tell(Finished("stacks/gateway-0/1", (7,)))
    assert not answers(read(bench, stacks)), "its answer is being written"
    bench.tell(Failed(f"answer/{stacks.id}", "OSError", "full"))
    again = read(bench, stacks)
    assert not actions(again, DumpStacks) and answers(again)[0].is_done


def test_an_order_for_another_attempt_is_answered_and_not_carried_out():
    bench = live_bench()
    effects = read(bench, wish(CommandKind.stop, attempt=ATTEMPT - 1))
    assert not answers(effects)[0].is_done and "attempt 2" in answers(effects)[0].text
    assert not any(isinstance(e, Note) and e.kind == "run_finishing" for e in effects)


def test_what_cannot_be_read_is_answered_with_its_file_the_reason_and_what_to_do():
    (answer,) = answers(read(live_bench(), Unreadable("garbage", "JSON is malformed")))
    assert not answer.is_done and answer.text.startswith("commands/garbage.json cannot be read: JSON is malformed; write it anew under")


def test_stacks_are_asked_again_and_again_and_tell_where_they_are():
    bench = live_bench()
    for number in (1, 2):
        effects = read(bench, Command(f"{number}-a", Wish(CommandKind.stacks, ATTEMPT, "cell-1")))
        assert len(actions(effects, DumpStacks)) == 1
        assert answers(effects)[0].files == "logs/cell-1-3-1.*stacks"
        bench.tell(Finished("stacks/cell-1/1", (7,)))
    assert not actions(bench.effects, TerminateProcess)


@pytest.mark.parametrize(("kind", "process"), [(CommandKind.stacks, "cell-9"), (CommandKind.hold, "controller"), (CommandKind.hold, "")])
def test_what_is_not_there_or_no_cell_is_refused_by_name(kind: CommandKind, process: str):
    (answer,) = answers(read(live_bench(), wish(kind, process)))
    assert not answer.is_done and (process in answer.text)


def test_a_held_cell_is_neither_ended_nor_started_again_until_it_is_released():
    bench = live_bench()
    read(bench, wish(CommandKind.hold, "cell-1"))
    assert bench.entry("cell-1").held
    order = RestartCell("cell-1", 1, "silent")
    assert not actions(bench.from_controller(order), TerminateProcess), "it stays for inspection"
    bench.exits("cell-1")
    assert not actions(bench.from_controller(order), SpawnProcess)
    read(bench, wish(CommandKind.release, "cell-1"))
    assert not bench.entry("cell-1").held
    assert actions(bench.from_controller(order), SpawnProcess) == [SpawnProcess("cell-1", 2)]


def test_a_cell_that_is_held_in_the_pause_before_its_next_start_is_started_after_its_release():
    bench = live_bench()
    for incarnation in (1, 2):
        bench.exits("cell-1", incarnation)
        bench.from_controller(RestartCell("cell-1", incarnation, "dead"))
    pause = TimerFired("backoff/cell-1/2")
    read(bench, wish(CommandKind.hold, "cell-1"))
    effects = bench.tell(pause)
    assert not actions(effects, SpawnProcess) and any(isinstance(e, SetTimer) and e.key == pause.key for e in effects)
    read(bench, wish(CommandKind.release, "cell-1"))
    assert actions(bench.tell(pause), SpawnProcess) == [SpawnProcess("cell-1", 3)]


def test_a_hold_lets_a_late_start_be_and_the_end_of_the_run_goes_before_it():
    bench = Bench()
    read(bench, wish(CommandKind.hold, "cell-0"))
    effects = bench.tell(TimerFired("start/cell-0/1"))
    assert not actions(effects, TerminateProcess) and any(isinstance(e, SetTimer) and e.key == "start/cell-0/1" for e in effects)
    bench.tell(Received("supervisor-0", FinishRun(130, "enough")))
    assert "cell-0" in {e.action.process for e in bench.tell(TimerFired("stage")) if isinstance(e, Start) and hasattr(e.action, "process")}


def test_a_folder_that_cannot_be_looked_at_is_told_once_and_looked_at_again():
    bench = live_bench()
    notes = []
    for _ in range(3):
        effects = bench.tell(Failed("commands", "OSError", "stale"))
        notes += [e for e in effects if isinstance(e, Note)]
        assert any(isinstance(e, SetTimer) and e.key == "commands" for e in effects)
    assert [note.kind for note in notes] == ["commands_unread"]
