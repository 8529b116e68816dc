"""The supervision machine, told facts by hand."""

from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
    Note,
    Received,
    Restarted,
    Send,
    SetTimer,
    Start,
    TimerFired,
)
from gyre_hpc.machines.supervision import (
    REFUSED,
    SUPERSEDED,
    CheckAttempts,
    DumpStacks,
    EndRun,
    KillProcess,
    MirrorDirectory,
    SpawnProcess,
    SupervisionMachine,
    SupervisionSettings,
    TerminateProcess,
)
from gyre_hpc.protocol.supervision import Entry, FinishRun, Register, RestartCell, SetAside

NAMES = ("controller", "gateway-0", "runner-0", "cell-0", "cell-1")
SETTINGS = SupervisionSettings(attempt=3, services=NAMES[:3], cells=NAMES[3:], extras=("scripted-0",), crash_limit=2, publish_s=0.0)


class Bench:
    """Feeds one machine and remembers what it wants done."""

    def __init__(self, settings: SupervisionSettings = SETTINGS) -> None:
        self.machine, self.now, self.effects = SupervisionMachine(settings), 0.0, list[Effect]()
        self.tell(Restarted())

    def tell(self, told: Input) -> list[Effect]:
        effects = self.machine.handle(self.now, told)
        self.effects += effects
        if actions(effects, MirrorDirectory):
            effects = effects + self.tell(Finished("mirror"))
        return effects

    def register(self, name: str, incarnation: int = 1, directory: int = -1) -> list[Effect]:
        return self.tell(Received(name, Register(name, incarnation, f"http://{name}/{incarnation}", 7, directory)))

    def from_controller(self, message: object) -> list[Effect]:
        return self.tell(Received("controller", message))

    def exits(self, name: str, incarnation: int = 1, code: int = 1) -> list[Effect]:
        return self.tell(Finished(f"child/{name}/{incarnation}", code))

    def entry(self, name: str) -> Entry:
        directories = [e.message for e in self.effects if isinstance(e, Send)]
        directories += [e.action.directory for e in self.effects if isinstance(e, Start) and isinstance(e.action, MirrorDirectory)]
        newest = max(directories, key=lambda directory: directory.number)
        return next(entry for entry in newest.entries if entry.process == name)


def actions(effects: list[Effect], kind: type) -> list:
    return [e.action for e in effects if isinstance(e, Start) and isinstance(e.action, kind)]


def timers(effects: list[Effect]) -> dict[str, float]:
    return {e.key: e.after_s for e in effects if isinstance(e, SetTimer)}


def live_bench() -> Bench:
    bench = Bench()
    for name in (*NAMES, "scripted-0"):
        bench.register(name)
    return bench


def test_every_child_is_started_once_and_cells_before_services():
    spawned = [a.process for a in actions(Bench().effects, SpawnProcess)]
    assert sorted(spawned) == sorted((*NAMES, "scripted-0"))
    assert spawned[:2] == ["cell-0", "cell-1"]


def test_a_registration_reaches_everybody_registered_with_a_larger_number():
    bench = Bench()
    bench.register("gateway-0")
    sends = [e for e in bench.register("cell-0") if isinstance(e, Send)]
    assert {send.to for send in sends} == {"gateway-0", "cell-0"}
    numbers = {send.message.number for send in sends}
    assert len(numbers) == 1 and bench.entry("cell-0").url == "http://cell-0/1"
    again = [e for e in bench.tell(TimerFired("tick")) if isinstance(e, Send)]
    assert {send.message.number for send in again} == numbers


def test_a_repeated_registration_is_a_heartbeat_and_no_change():
    bench = live_bench()
    assert not [e for e in bench.register("cell-0") if isinstance(e, Send)]


def test_a_dead_gateway_keeps_its_name_and_gets_the_next_incarnation_after_a_pause():
    bench = live_bench()
    effects = bench.exits("gateway-0", code=-9)
    assert not actions(effects, SpawnProcess)
    assert bench.entry("gateway-0").lost == "killed by signal 9" and not bench.entry("gateway-0").url
    (key,) = [key for key in timers(effects) if key.startswith("backoff")]
    assert actions(bench.tell(TimerFired(key)), SpawnProcess) == [SpawnProcess("gateway-0", 2)]
    assert bench.entry("gateway-0") == Entry("gateway-0", 2)


def test_a_crash_loop_ends_the_run_and_names_the_service():
    bench = live_bench()
    for incarnation in range(1, 4):
        bench.register("runner-0", incarnation)
        effects = bench.exits("runner-0", incarnation)
        bench.tell(TimerFired(f"backoff/runner-0/{incarnation}"))
    assert actions(effects, TerminateProcess) == [TerminateProcess("controller", 1)]
    for name in (*NAMES, "scripted-0"):
        if name != "runner-0":
            effects = bench.exits(name, code=0)
    (end,) = actions(effects, EndRun)
    assert end.exit_code == 1 and "runner-0 failed 3 times" in end.reason


def test_failures_far_apart_are_no_crash_loop():
    bench = live_bench()
    for incarnation in range(1, 13):
        bench.now += SETTINGS.crash_window_s
        bench.exits("runner-0", incarnation)
        assert actions(bench.tell(TimerFired(f"backoff/runner-0/{incarnation}")), SpawnProcess)
        bench.register("runner-0", incarnation + 1)


def test_a_service_that_refuses_its_configuration_ends_the_run_at_once():
    bench = live_bench()
    bench.exits("controller", code=REFUSED)
    assert actions(bench.effects, SpawnProcess)[-1] == SpawnProcess("scripted-0", 1)
    assert {a.process for a in actions(bench.effects, TerminateProcess)} == {*NAMES[1:], "scripted-0"}


def test_a_dead_cell_is_reported_lost_and_waits_for_the_controller():
    bench = live_bench()
    effects = bench.exits("cell-1")
    assert not actions(effects, SpawnProcess) and not [k for k in timers(effects) if k.startswith("backoff")]
    assert bench.entry("cell-1").lost == "exit code 1"
    assert not actions(bench.tell(Received("gateway-0", RestartCell("cell-1", 1, "x"))), SpawnProcess)
    assert actions(bench.from_controller(RestartCell("cell-1", 1, "lost")), SpawnProcess) == [SpawnProcess("cell-1", 2)]
    assert not actions(bench.from_controller(RestartCell("cell-1", 1, "lost")), SpawnProcess), "an order given twice starts it once"


def test_a_living_cell_is_stopped_before_its_next_incarnation_starts():
    bench = live_bench()
    effects = bench.from_controller(RestartCell("cell-0", 1, "silent"))
    effects += bench.tell(Finished("stacks/cell-0/1", ()))
    assert actions(effects, TerminateProcess) == [TerminateProcess("cell-0", 1)] and not actions(effects, SpawnProcess)
    assert actions(bench.tell(TimerFired("grace/cell-0/1")), KillProcess) == [KillProcess("cell-0", 1)]
    assert actions(bench.exits("cell-0", code=-9), SpawnProcess) == [SpawnProcess("cell-0", 2)]


def stacks_of(effects: list[Effect]) -> tuple[list, list[dict]]:
    return actions(effects, DumpStacks), [e.fields for e in effects if isinstance(e, Note) and e.kind == "stacks_asked"]


def test_a_child_that_missed_a_deadline_is_asked_for_its_stacks_before_it_is_told_to_end():
    bench = live_bench()
    effects = bench.from_controller(RestartCell("cell-0", 1, "silent"))
    assert not actions(effects, TerminateProcess), "that could end it in the midst of them"
    assert stacks_of(effects) == (
        [DumpStacks("cell-0", 1)],
        [{"process": "cell-0", "incarnation": 1, "reason": "restart ordered: silent", "files": "logs/cell-0-3-1.*stacks"}],
    )
    assert "stacks/cell-0/1" not in timers(effects), "once"
    assert actions(bench.tell(Failed("stacks/cell-0/1", "OSError", "x")), TerminateProcess) == [TerminateProcess("cell-0", 1)]
    assert not actions(bench.tell(Finished("stacks/cell-0/1", ())), TerminateProcess)
    late = Bench()
    assert stacks_of(late.tell(TimerFired("start/runner-0/1")))[0] == [DumpStacks("runner-0", 1)]
    for _ in range(SETTINGS.silent_ticks + 1):
        effects = bench.tell(TimerFired("tick"))
    assert DumpStacks("gateway-0", 1) in stacks_of(effects)[0]


def test_a_child_that_does_not_end_is_asked_for_its_stacks_before_it_is_killed():
    bench = live_bench()
    effects = bench.from_controller(FinishRun(0, "done"))
    assert stacks_of(effects) == ([], [])
    assert timers(effects)["stacks/controller/1"] < SETTINGS.grace_s
    assert stacks_of(bench.tell(TimerFired("stacks/controller/1")))[0] == [DumpStacks("controller", 1)]
    assert not actions(bench.tell(Finished("stacks/controller/1", (7,))), TerminateProcess), "it was told"
    ended = bench.exits("controller", code=0)
    assert CancelTimer("stacks/controller/1") in ended and stacks_of(bench.tell(TimerFired("stacks/controller/1"))) == ([], [])


def test_a_cell_that_dies_at_each_start_is_started_more_and_more_slowly():
    bench = live_bench()
    pauses = []
    for incarnation in range(1, 6):
        bench.exits("cell-1", incarnation)
        effects = bench.from_controller(RestartCell("cell-1", incarnation, "lost"))
        assert not bench.from_controller(RestartCell("cell-1", incarnation, "lost"))
        if not actions(effects, SpawnProcess):
            pauses += timers(effects).values()
            assert actions(bench.tell(TimerFired(f"backoff/cell-1/{incarnation}")), SpawnProcess) == [
                SpawnProcess("cell-1", incarnation + 1)
            ]
    assert pauses == [0.4, 0.8, 1.6, 3.2]


def test_a_cell_set_aside_stays_stopped():
    bench = live_bench()
    bench.from_controller(SetAside("cell-0", "three failed starts"))
    bench.exits("cell-0", code=0)
    bench.from_controller(RestartCell("cell-0", 1, "again"))
    assert bench.entry("cell-0").lost == "set aside: three failed starts" and bench.entry("cell-0").aside
    assert not bench.entry("cell-1").aside
    assert actions(bench.effects, SpawnProcess).count(SpawnProcess("cell-0", 2)) == 0


def test_a_process_that_never_registers_counts_as_a_failed_start():
    bench = Bench()
    bench.tell(TimerFired("start/runner-0/1"))
    assert actions(bench.tell(Finished("stacks/runner-0/1", ())), TerminateProcess) == [TerminateProcess("runner-0", 1)]
    bench.exits("runner-0", code=-15)
    assert "did not register within 120 s" in bench.entry("runner-0").lost
    assert not actions(live_bench().tell(TimerFired("start/runner-0/1")), TerminateProcess)


def test_a_silent_service_is_stopped_but_a_silent_cell_is_not():
    bench = live_bench()
    for _ in range(SETTINGS.silent_ticks + 1):
        for name in ("controller", "gateway-0", "scripted-0"):
            bench.register(name)
        effects = bench.tell(TimerFired("tick"))
    assert actions(effects, DumpStacks) == [DumpStacks("runner-0", 1)]
    assert actions(bench.tell(Finished("stacks/runner-0/1", ())), TerminateProcess) == [TerminateProcess("runner-0", 1)]


def test_finishing_stops_the_controller_first_and_ends_after_the_last_child():
    bench = live_bench()
    effects = bench.from_controller(FinishRun(0, "done"))
    assert actions(effects, TerminateProcess) == [TerminateProcess("controller", 1)]
    effects = bench.exits("controller", code=0)
    assert len(actions(effects, TerminateProcess)) == 5
    for name in (*NAMES[1:], "scripted-0"):
        assert not actions(effects, EndRun)
        effects = bench.exits(name, code=0)
    assert actions(effects, EndRun) == [EndRun(0, "done")]
    assert not bench.tell(TimerFired("tick")), "nothing happens after the end"


def test_an_unkillable_child_does_not_hold_up_the_end():
    bench = live_bench()
    bench.tell(Received("supervisor-0", FinishRun(130, "SIGINT")))
    for name in ("controller", *NAMES[2:], "scripted-0"):
        bench.exits(name, code=0)
    bench.tell(TimerFired("grace/gateway-0/1"))
    assert actions(bench.tell(TimerFired("gone/gateway-0/1")), EndRun) == [EndRun(130, "SIGINT")]


def test_a_kill_that_failed_is_tried_again():
    bench = live_bench()
    bench.from_controller(RestartCell("cell-0", 1, "silent"))
    assert "grace/cell-0/1" in timers(bench.tell(Failed("kill/cell-0/1", "OSError", "x")))
    assert actions(bench.tell(TimerFired("grace/cell-0/1")), KillProcess) == [KillProcess("cell-0", 1)]
    assert not timers(bench.tell(Failed("kill/cell-1/1", "OSError", "x"))), "nobody wants it gone any more"


def test_a_higher_attempt_ends_this_one():
    bench = live_bench()
    assert actions(bench.tell(TimerFired("tick")), CheckAttempts)
    assert not actions(bench.tell(Finished("attempts", 3)), TerminateProcess)
    bench.tell(TimerFired("tick"))
    bench.tell(Finished("attempts", 4))
    bench.exits("controller", code=0)
    for name in (*NAMES[1:], "scripted-0"):
        effects = bench.exits(name, code=0)
    assert actions(effects, EndRun)[0].exit_code == SUPERSEDED


def test_an_extra_that_ended_well_is_not_started_again():
    bench = live_bench()
    effects = bench.exits("scripted-0", code=0)
    assert not timers(effects) and not actions(effects, SpawnProcess)
