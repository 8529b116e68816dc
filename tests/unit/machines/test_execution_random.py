"""The execution machine in a world that answers in any order, fails, and crashes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gyre_hpc.machines.base import (
    CancelTimer,
    Effect,
    Failed,
    Finished,
    Input,
    Persist,
    Persisted,
    SetTimer,
    Start,
    Stop,
    TimerFired,
)
from gyre_hpc.machines.execution import (
    RunHarness,
    Scored,
)
from gyre_hpc.protocol.to_batch import ScoreState
from tests.fakes.execution_bench import SETTINGS, WELL, A, B, Bench, C

STEPS = st.lists(st.tuples(st.sampled_from(["assign", "act", "fail", "timer", "persist", "crash"]), st.integers(0, 63)), max_size=80)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_every_begun_execution_has_one_end_and_never_a_score_without_a_whole_life(steps):
    """Random answers, timers, disk failures and crashes; after it all, the world answers until all is quiet."""
    world = World()
    for step, value in steps:
        world.step(step, value)
    world.settle()
    ended = world.bench.ended()
    assert set(ended) <= set(world.assigned) | set(world.began)
    for execution in world.assigned:
        assert execution in ended, execution
        assert (ended[execution].score is None) == (ended[execution].state is ScoreState.infra_error)


class World:
    """Keeps what the machine started, set and persisted, and answers in any order."""

    def __init__(self) -> None:
        self.bench = Bench(persist=False, swept=False)
        self.durable: list = []
        self.reset()
        self.assigned: tuple[str, ...] = ()
        self.began: set[str] = set()
        self.take(self.bench.effects)

    def reset(self) -> None:
        self.actions: dict[str, object] = {}
        self.timers: dict[str, float] = {}
        self.persists: dict[str, object] = {}

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Start(key=key, action=action):
                    assert key not in self.actions, key
                    if isinstance(action, RunHarness):
                        assert action.begin.execution not in self.began, "begun twice under one id"
                        self.began.add(action.begin.execution)
                    self.actions[key] = action
                case Stop(key=key):
                    self.actions.pop(key, None)
                case SetTimer(key=key, after_s=after_s):
                    self.timers[key] = after_s
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case Persist(key=key, record=record):
                    assert key not in self.persists, key
                    self.persists[key] = record
        running = [key for key in self.actions if key.startswith(("prepare/", "run/", "score/"))]
        assert len(running) <= SETTINGS.room + 1  # one may be a harness that is being killed

    def tell(self, told: Input) -> None:
        self.take(self.bench.tell(told))

    def answer(self, key: str, good: bool) -> None:
        action = self.actions.pop(key)
        verb = key.partition("/")[0]
        if not good and verb not in ("term", "kill"):
            self.tell(Failed(key, "OSError", "broken"))
        elif verb == "run":
            self.tell(Finished(key, WELL))
        elif verb == "score":
            self.tell(Finished(key, Scored(1.0, True)))
        else:
            self.tell(Finished(key, 1.0 if key == "usage" else None))
        assert action is not None

    def step(self, step: str, value: int) -> None:
        if step == "assign":
            self.assigned = tuple(id for bit, id in enumerate((A, B, C)) if value & (1 << bit) or id in self.assigned)
            effects = self.bench.assign(*self.assigned)
            self.take(effects)
        elif step in ("act", "fail") and self.actions:
            self.answer(list(self.actions)[value % len(self.actions)], step == "act")
        elif step == "timer" and self.timers:
            key = list(self.timers)[value % len(self.timers)]
            del self.timers[key]
            self.tell(TimerFired(key))
        elif step == "persist" and self.persists:
            key = next(iter(self.persists))
            self.durable.append(self.persists.pop(key))
            self.tell(Persisted(key) if value % 4 else Failed(key, "StorageFull", "no space"))
        elif step == "crash":
            number = self.bench.number
            self.bench = Bench(tuple(self.durable), persist=False, swept=False)
            self.bench.number = number
            self.reset()
            self.take(self.bench.effects)

    def settle(self) -> None:
        self.take(self.bench.assign(*self.assigned))
        for _ in range(200):
            for key in list(self.persists):
                self.durable.append(self.persists.pop(key))
                self.tell(Persisted(key))
            for key in list(self.actions):
                if key in self.actions:
                    self.answer(key, True)
            if "storage" in self.timers:
                del self.timers["storage"]
                self.tell(TimerFired("storage"))
