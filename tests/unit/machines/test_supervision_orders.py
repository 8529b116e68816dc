"""What people order of the supervision machine: carried out at most once, answered always."""

import pytest

from gyre_hpc.machines.base import Failed, Finished, Note, Received, SetTimer, Start, TimerFired
from gyre_hpc.machines.supervision import STOPPED, DumpStacks, EndRun, ReadCommands, SpawnProcess, TerminateProcess, WriteAnswer
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.protocol.supervision import FinishRun, RestartCell, SetAside
from tests.unit.machines.test_supervision import SETTINGS, Bench, actions

NEVER = Wish(CommandKind.stop, SETTINGS.attempt + 1)
"""Meant for another attempt."""


def order(kind: CommandKind, process: str = "", *, id: str = "1-a", attempt: int = SETTINGS.attempt) -> Command:
    return Command(id, Wish(kind, attempt, process, "for a test"))


def read(bench: Bench, *found: Command | Unreadable) -> list:
    """The look that is under way ends with `found`."""
    return bench.tell(Finished("commands", found))


def answers(effects: list) -> dict[str, Answer]:
    return {action.id: action.answer for action in actions(effects, WriteAnswer)}


def test_it_looks_for_orders_from_the_beginning_and_again_after_each_look():
    bench = Bench()
    assert actions(bench.effects, ReadCommands)
    timers = [effect for effect in read(bench) if isinstance(effect, SetTimer) and effect.key == "commands"]
    assert [timer.after_s for timer in timers] == [SETTINGS.commands_s]
    assert actions(bench.tell(TimerFired("commands")), ReadCommands)


def test_an_order_to_stop_ends_the_run_in_order_with_its_reason_and_is_answered():
    bench = Bench()
    bench.register("controller")
    effects = read(bench, order(CommandKind.stop))
    assert [action.process for action in actions(effects, TerminateProcess)] == ["controller"]
    assert answers(effects)["1-a"].is_done
    finishing = next(effect for effect in effects if isinstance(effect, Note) and effect.kind == "run_finishing")
    assert finishing.fields == {"exit_code": STOPPED, "reason": "for a test"}


def test_an_order_that_comes_twice_is_carried_out_once_whichever_way_it_comes():
    bench = Bench()
    bench.register("cell-0")
    first = read(bench, order(CommandKind.stacks, "cell-0"))
    assert actions(first, DumpStacks)
    bench.tell(Finished("answer/1-a"))
    bench.tell(Finished("stacks/cell-0/1", ()))
    again = bench.tell(Received("gyre", order(CommandKind.stacks, "cell-0")))
    assert not actions(again, DumpStacks)
    assert answers(again) == answers(first)


def test_an_answer_that_could_not_be_written_is_written_when_the_order_is_read_again():
    bench = Bench()
    first = read(bench, order(CommandKind.stop))
    bench.tell(Failed("answer/1-a", "OSError", "disk full"))
    assert answers(read(bench, order(CommandKind.stop))) == answers(first)


def test_an_answer_that_is_being_written_is_not_begun_again():
    bench = Bench()
    read(bench, order(CommandKind.stop))
    assert not answers(read(bench, order(CommandKind.stop)))


def test_an_order_for_another_attempt_is_refused_and_changes_nothing():
    bench = Bench()
    effects = read(bench, Command("1-a", NEVER))
    assert not answers(effects)["1-a"].is_done and "attempt 4" in answers(effects)["1-a"].text
    assert not [effect for effect in effects if isinstance(effect, Note) and effect.kind == "run_finishing"]


def test_an_order_that_names_no_attempt_is_for_the_one_that_lived_when_it_was_written():
    bench = Bench()
    wish = Wish(CommandKind.stop)
    old = answers(read(bench, Command("1-a", wish, is_older=True)))["1-a"]
    assert (old.is_done, old.text) == (False, "it is older than attempt 3")
    assert answers(read(bench, Command("2-b", wish)))["2-b"].is_done


def test_what_cannot_be_read_is_answered_with_the_reason():
    effects = read(Bench(), Unreadable("x", "no JSON"))
    assert answers(effects) == {"x": Answer(SETTINGS.attempt, False, "it cannot be read: no JSON")}


def test_a_second_order_to_stop_is_told_that_the_run_ends_already():
    bench = Bench()
    read(bench, order(CommandKind.stop, id="1-a"))
    effects = read(bench, order(CommandKind.stop, id="2-b"))
    assert answers(effects)["2-b"].is_done and "already: for a test" in answers(effects)["2-b"].text


def test_stacks_of_a_process_that_is_not_there_or_not_known_are_refused_by_name():
    bench = Bench()
    bench.exits("cell-0")
    gone = answers(read(bench, order(CommandKind.stacks, "cell-0", id="1-a")))["1-a"]
    unknown = answers(read(bench, order(CommandKind.stacks, "cell-9", id="2-b")))["2-b"]
    assert not gone.is_done and gone.text.startswith("cell-0 does not run")
    assert not unknown.is_done and "cell-1" in unknown.text


def test_stacks_can_be_asked_for_again_and_the_answer_names_their_files():
    bench = Bench()
    bench.register("gateway-0")
    first = read(bench, order(CommandKind.stacks, "gateway-0", id="1-a"))
    assert answers(first)["1-a"].files == "logs/gateway-0-3-1.*stacks"
    bench.tell(Finished("stacks/gateway-0/1", ()))
    assert actions(read(bench, order(CommandKind.stacks, "gateway-0", id="2-b")), DumpStacks)


def test_a_held_cell_is_neither_ended_nor_started_until_it_is_released():
    bench = Bench()
    bench.register("cell-0")
    read(bench, order(CommandKind.hold, "cell-0", id="1-a"))
    assert bench.entry("cell-0").held
    assert not actions(bench.from_controller(RestartCell("cell-0", 1, "slow")), TerminateProcess)
    bench.exits("cell-0")
    assert not actions(bench.from_controller(RestartCell("cell-0", 1, "gone")), SpawnProcess)
    read(bench, order(CommandKind.release, "cell-0", id="2-b"))
    assert actions(bench.from_controller(RestartCell("cell-0", 1, "gone")), SpawnProcess) == [SpawnProcess("cell-0", 2)]


@pytest.mark.parametrize("last_word", [FinishRun(0, "done"), SetAside("cell-0", "broken")])
def test_the_end_and_setting_aside_go_before_a_hold(last_word: FinishRun | SetAside):
    bench = Bench()
    for name in ("controller", "cell-0"):
        bench.register(name)
    read(bench, order(CommandKind.hold, "cell-0"))
    effects = bench.from_controller(last_word)
    effects += bench.exits("controller", code=0)
    assert "cell-0" in [action.process for action in actions(effects, TerminateProcess)]


def test_only_a_cell_can_be_held():
    assert not answers(read(Bench(), order(CommandKind.hold, "controller")))["1-a"].is_done


def test_a_folder_that_cannot_be_read_is_told_once_and_looked_at_again():
    bench = Bench()

    def notes(reason: str) -> list[str]:
        effects = bench.tell(Failed("commands", "OSError", reason))
        assert [effect for effect in effects if isinstance(effect, SetTimer) and effect.key == "commands"]
        return [effect.kind for effect in effects if isinstance(effect, Note)]

    assert [notes("stale"), notes("stale"), notes("denied")] == [["commands_unread"], [], ["commands_unread"]]


def test_it_looks_for_orders_while_the_run_ends_but_not_after_that():
    bench = Bench()
    read(bench, order(CommandKind.stop))
    assert actions(bench.tell(TimerFired("commands")), ReadCommands)
    for name in ("controller", "gateway-0", "runner-0", "cell-0", "cell-1", "scripted-0"):
        bench.exits(name, code=0)
    assert [effect for effect in bench.effects if isinstance(effect, Start) and isinstance(effect.action, EndRun)]
    assert not actions(bench.tell(TimerFired("commands")), ReadCommands)
