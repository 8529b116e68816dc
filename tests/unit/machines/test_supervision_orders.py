"""Orders of people at the edges: answers that are not written, files of attempts before, holds and the end of the run."""

import pytest

from gyre_hpc.machines.base import Failed, Finished, Start, TimerFired
from gyre_hpc.machines.supervision import EndRun, ReadCommands, TerminateProcess, WriteAnswer
from gyre_hpc.protocol.people import Answer, Command, CommandKind, Unreadable, Wish
from gyre_hpc.protocol.supervision import FinishRun, SetAside
from tests.unit.machines.test_supervision import SETTINGS, Bench, actions


def order(kind: CommandKind, process: str = "", *, id: str = "1-a", attempt: int = SETTINGS.attempt) -> Command:
    return Command(id, Wish(kind, attempt, process, "for a test"))


def read(bench: Bench, *found: Command | Unreadable) -> list:
    """The look that is under way ends with `found`."""
    return bench.tell(Finished("commands", found))


def answers(effects: list) -> dict[str, Answer]:
    return {action.id: action.answer for action in actions(effects, WriteAnswer)}


def test_an_answer_that_could_not_be_written_is_written_when_the_order_is_read_again():
    bench = Bench()
    first = read(bench, order(CommandKind.stop))
    bench.tell(Failed("answer/1-a", "OSError", "disk full"))
    assert answers(read(bench, order(CommandKind.stop))) == answers(first)


def test_an_answer_that_is_being_written_is_not_begun_again():
    bench = Bench()
    read(bench, order(CommandKind.stop))
    assert not answers(read(bench, order(CommandKind.stop)))


def test_an_order_that_names_no_attempt_is_for_the_one_that_lived_when_it_was_written():
    bench = Bench()
    wish = Wish(CommandKind.stop)
    old = answers(read(bench, Command("1-a", wish, is_older=True)))["1-a"]
    assert (old.is_done, old.text) == (False, "it is older than attempt 3")
    assert answers(read(bench, Command("2-b", wish)))["2-b"].is_done


@pytest.mark.parametrize("last_word", [FinishRun(0, "done"), SetAside("cell-0", "broken")])
def test_the_end_and_setting_aside_go_before_a_hold(last_word: FinishRun | SetAside):
    bench = Bench()
    for name in ("controller", "cell-0"):
        bench.register(name)
    read(bench, order(CommandKind.hold, "cell-0"))
    effects = bench.from_controller(last_word)
    effects += bench.exits("controller", code=0)
    assert "cell-0" in [action.process for action in actions(effects, TerminateProcess)]


def test_it_looks_for_orders_while_the_run_ends_but_not_after_that():
    bench = Bench()
    read(bench, order(CommandKind.stop))
    assert actions(bench.tell(TimerFired("commands")), ReadCommands)
    for name in ("controller", "gateway-0", "runner-0", "cell-0", "cell-1", "scripted-0"):
        bench.exits(name, code=0)
    assert [effect for effect in bench.effects if isinstance(effect, Start) and isinstance(effect.action, EndRun)]
    assert not actions(bench.tell(TimerFired("commands")), ReadCommands)
