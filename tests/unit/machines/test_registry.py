"""The directory: few copies of it, however many processes come, and none for who has it."""

from dataclasses import replace

from gyre_hpc.machines.base import Send, TimerFired
from tests.unit.machines.test_supervision import NAMES, SETTINGS, Bench, live_bench, timers


def test_many_that_come_at_once_are_told_in_few_directories():
    bench = Bench(replace(SETTINGS, publish_s=0.25))
    effects = [effect for name in NAMES for effect in bench.register(name)]
    assert [send.to for send in effects if isinstance(send, Send)] == ["controller"]
    assert timers(effects)["publish"] == 0.25
    bench.now = 0.25
    sends = [e for e in bench.tell(TimerFired("publish")) if isinstance(e, Send)]
    assert {send.to for send in sends} == set(NAMES) and len({send.message.number for send in sends}) == 1
    bench.now = 0.6
    assert {e.to for e in bench.exits("cell-1") if isinstance(e, Send)} == set(NAMES) - {"cell-1"}, "nothing was told just now"


def test_who_says_that_it_has_the_directory_is_not_sent_it_again():
    bench = live_bench()
    (number,) = {e.message.number for e in bench.tell(TimerFired("tick")) if isinstance(e, Send)}
    for name in (*NAMES, "scripted-0"):
        bench.register(name, directory=number if name != "cell-1" else number - 1)
    assert {e.to for e in bench.tell(TimerFired("tick")) if isinstance(e, Send)} == {"cell-1"}
    bench.register("cell-1", directory=number)
    assert not [e for e in bench.tell(TimerFired("tick")) if isinstance(e, Send)]
    bench.exits("gateway-0")
    assert {e.to for e in bench.tell(TimerFired("tick")) if isinstance(e, Send)} == {*NAMES, "scripted-0"} - {"gateway-0"}


def test_the_more_processes_there_are_the_longer_is_the_time_between_two_directories():
    cells = tuple(f"cell-{number}" for number in range(256))
    bench = Bench(replace(SETTINGS, cells=cells, extras=(), publish_s=0.25))
    effects = [effect for name in cells for effect in bench.register(name)]
    assert 1.0 < timers(effects)["publish"] < 1.1
    assert len([e for e in effects if isinstance(e, Send)]) == 1
