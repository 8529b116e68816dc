"""A controller whose attempt is over may go on writing for a while: nobody believes it."""

from gyre_hpc.machines.base import Persist
from gyre_hpc.machines.batch.records import AttemptBegun, GroupBegun
from tests.fakes.batch_bench import GROUPS, HISTORY, machine


def test_an_attempt_says_how_many_records_it_found() -> None:
    _, effects = machine(*HISTORY, attempt=2)
    begun = [effect.record for effect in effects if isinstance(effect, Persist) and isinstance(effect.record, AttemptBegun)]
    assert begun == [AttemptBegun(2, len(HISTORY))]


def test_what_an_earlier_attempt_wrote_after_that_does_not_count() -> None:
    late = GroupBegun(GROUPS[0])
    bench, _ = machine(*HISTORY, late, AttemptBegun(2, len(HISTORY)), attempt=2)
    plain, _ = machine(*HISTORY, AttemptBegun(2, len(HISTORY)), attempt=2)
    assert bench.state.groups.begun == plain.state.groups.begun and bench.state.groups.begun["train"] == len(GROUPS)
