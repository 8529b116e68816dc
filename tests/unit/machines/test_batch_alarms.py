"""A trouble that fails write after write is told once in a while, not once a write."""

from gyre_hpc.machines.base import Effect, Failed, Note, Persist, Start
from gyre_hpc.machines.batch import BatchMachine
from gyre_hpc.machines.batch.actions import WriteStatus
from gyre_hpc.machines.batch.alarms import AGAIN_S, EPISODE_S
from gyre_hpc.machines.batch.records import Counted
from gyre_hpc.machines.batch.state import persist
from tests.fakes import batch_bench
from tests.fakes.batch_bench import serving

FULL = "[Errno 28] No space left on device"


def alarms(effects: list[Effect]) -> list[str]:
    return [effect.fields["what"] for effect in effects if isinstance(effect, Note) and effect.kind == "alarm"]


def refuse_all(made: BatchMachine, now: float, effects: list[Effect]) -> list[Effect]:
    """By a disk that is full: every record of `effects`, and the status."""
    keys = [effect.key for effect in effects if isinstance(effect, Persist)]
    keys += [effect.key for effect in effects if isinstance(effect, Start) and isinstance(effect.action, WriteStatus)]
    return [answer for key in keys for answer in made.handle(now, Failed(key, "OSError", FULL))]


def test_a_disk_that_stays_full_is_an_alarm_a_minute_however_many_writes_it_refuses() -> None:
    made, told, num_refused = serving(), list[str](), 0
    told += alarms(made.handle(0.4, Failed("status", "OSError", FULL)))  # the one that is under way
    for _ in range(3):
        told += alarms(refuse_all(made, 0.5, persist(made.state, Counted({}), lambda state, now: [])))
    for second in range(1, int(2 * AGAIN_S)):
        for cell in made.state.fleet.cells.values():
            cell.heard_at = float(second)
        effects = batch_bench.tick(made, float(second))
        num_refused += sum(isinstance(effect, Persist) for effect in effects)
        told += alarms(effects) + alarms(refuse_all(made, float(second), effects))
    assert num_refused > 10 and made.state.storage_full == FULL
    assert told.count("state cannot be written; dispatch pauses") == 2
    assert told.count("status failed") == 2
    assert sorted(made.state.alarms) == sorted(set(made.state.alarms)), "the status shows each once"


def test_a_trouble_that_was_over_is_told_again() -> None:
    made = serving()
    times = [1.0, 2.0, 2.0 + EPISODE_S, 3.0 + EPISODE_S]
    assert [len(alarms(made.handle(at, Failed("a", "OSError", "x")))) for at in times] == [1, 0, 1, 0]


def test_two_troubles_are_two_alarms() -> None:
    made = serving()
    told = [alarms(made.handle(1.0, Failed(key, "OSError", reason))) for key, reason in [("a", "x"), ("a", "x"), ("a", "y"), ("b", "x")]]
    assert told == [["a failed"], [], ["a failed"], ["b failed"]]
    assert made.state.alarms == ["a failed, OSError, x", "a failed, OSError, y", "b failed, OSError, x"]
