"""The supervision machine, told facts by hypothesis."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.machines.base import (
    Effect,
    Failed,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.supervision import (
    EndRun,
    SpawnProcess,
    TerminateProcess,
)
from gyre_hpc.protocol.supervision import Directory, FinishRun, RestartCell, SetAside
from tests.unit.machines.test_supervision import NAMES, Bench

INPUTS = st.one_of(
    st.tuples(st.just("register"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("exit"), st.sampled_from(NAMES), st.sampled_from([0, 1, 2, -9])),
    st.tuples(st.just("spawn_failed"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("restart"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("aside"), st.sampled_from(NAMES[3:]), st.just(0)),
    st.tuples(st.just("timer"), st.just(""), st.integers(0, 30)),
    st.tuples(st.just("finish"), st.just(""), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(INPUTS, max_size=60))
def test_one_incarnation_at_a_time_growing_numbers_and_an_end_without_children(steps):
    bench = Bench()
    running: dict[str, int] = {}
    highest: dict[str, int] = {}
    set_timers: dict[str, float] = {}
    number = 0
    ended = False

    def check(effects: list[Effect]) -> None:
        nonlocal number, ended
        for effect in effects:
            match effect:
                case Start(action=SpawnProcess(process=name, incarnation=incarnation)):
                    assert name not in running and incarnation > highest.get(name, -1) and not ended
                    running[name] = highest[name] = incarnation
                case Start(action=EndRun()):
                    assert not running and not ended
                    ended = True
                case Start(action=TerminateProcess(process=name, incarnation=incarnation)):
                    assert running.get(name) == incarnation
                case Send(message=Directory(number=new)):
                    assert new >= number
                    number = new
                case SetTimer(key=key, after_s=after_s):
                    set_timers[key] = after_s

    check(bench.effects)
    for verb, name, value in steps:
        if verb == "register":
            effects = bench.register(name, value)
        elif verb == "exit" and name in running:
            effects = bench.exits(name, running.pop(name), value)
        elif verb == "spawn_failed" and name in running:
            effects = bench.tell(Failed(f"child/{name}/{running.pop(name)}", "OSError", "no memory"))
        elif verb == "restart":
            effects = bench.from_controller(RestartCell(name, value, "x"))
        elif verb == "aside":
            effects = bench.from_controller(SetAside(name, "x"))
        elif verb == "timer" and set_timers:
            key = list(set_timers)[value % len(set_timers)]
            set_timers.pop(key)
            effects = [] if key.startswith("gone/") else bench.tell(TimerFired(key))
        elif verb == "finish":
            effects = bench.from_controller(FinishRun(0, "x"))
        else:
            continue
        check(effects)
        bench.now += 0.5
