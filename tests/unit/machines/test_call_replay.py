"""Another life of an execution in a gateway machine: recorded requests get recorded answers, then sampling goes on."""

from dataclasses import replace
from typing import Any

import msgspec

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.actions import Earlier, EngineAttempt
from gyre_hpc.machines.call.turns import digest_turns, likeness_of
from gyre_hpc.protocol.journal import CallBegin, CallProgress, Delivered, Known, Record, Replayed, TakenUp, execution_of
from gyre_hpc.protocol.to_batch import CallReplayed, ExecutionTakenUp, FirstCall, ReplayDiverged
from gyre_hpc.trajectory.lives import counting
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"


class Lives(CallWorld):
    """A world that can lose its allocation. Clients say the time: what follows ` @ ` differs from life to life."""

    def __init__(self, **changed: Any) -> None:
        self.before: list[Record] = []
        super().__init__(**changed)

    def arrive(self, client: Client) -> None:
        turns = digest_turns(client.messages, lambda text: text.partition(" @ ")[0])
        client.asks["likeness"] = likeness_of(turns=turns)
        super().arrive(client)

    def preempt(self) -> None:
        """kill -9 of everything; another attempt begins."""
        self.before, self.journal = counting({1: self.before, 2: self.journal}) if self.before else list(self.journal), []
        self.restart()

    def restart(self) -> None:
        for client in self.clients:
            client.conn = ""
        self.over, self.clients = [], []
        self._begin(())

    def _begin(self, records: tuple[Record, ...]) -> None:
        earlier = {execution_of(one) for one in self.before}
        given = [Earlier(name, (1,), tuple(one for one in self.before if execution_of(one) == name)) for name in sorted(earlier)]
        super()._begin((*given, *records))  # type: ignore[arg-type]
        if self.rows:
            self.set_table(*self.rows)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.journal if isinstance(one, kind)]


def agent(life: int = 0, turns: int = 3, **more: Any) -> Client:
    said = f"go @ {life}" if life else "go"
    asks = {"life": life} if life else {}
    return Client(EXECUTION, f"t{life}", turns, False, messages=[Message(role="user", content=said)], asks=asks, **more)


def begun(turns: int = 3, **changed: Any) -> Lives:
    world = Lives(**changed)
    world.set_table(row(0))
    world.clients.append(agent(turns=turns))
    return world


def test_a_new_process_gets_what_the_old_one_got_and_goes_on_from_there() -> None:
    undisturbed = begun(turns=4)
    undisturbed.settle()
    world = begun(turns=2)
    world.settle()
    answers = list(world.clients[0].answers)
    world.preempt()
    world.clients.append(agent(1, turns=4))
    world.settle()
    assert world.clients[0].answers[:2] == answers
    assert world.clients[0].answers == undisturbed.clients[0].answers, "the same ids, so the same tokens"
    assert [one.call for one in world.of(Replayed)] == [f"{EXECUTION}/0", f"{EXECUTION}/1"]
    assert [one.call for one in world.of(CallBegin)] == [f"{EXECUTION}/2", f"{EXECUTION}/3"]
    assert {one.call for one in world.of(CallProgress)} == {f"{EXECUTION}/2", f"{EXECUTION}/3"}
    assert {(one.call, one.life) for one in world.of(Delivered)} == {(f"{EXECUTION}/{place}", 1) for place in range(4)}
    new = world.begins()[f"{EXECUTION}/2"]
    assert (new.parent, new.branch) == (f"{EXECUTION}/1", ""), "the recorded ids stay the context, whatever the clock says"


def test_a_call_that_was_under_way_goes_on_from_its_recorded_tokens() -> None:
    world = begun(progress_tokens=2)
    world.scripts[f"{EXECUTION}/0"] = [*b"a long word"]
    while not world.of(CallProgress):
        if world.writes:
            world.write(1)
        elif others := world.others():
            world.finish(others[0])
        elif attempts := list(world.actions):
            world.give(attempts[0], 2)
        else:
            world.arrive(world.clients[0])
    (progress,) = world.of(CallProgress)
    num = len(progress.output_ids) // 4
    world.preempt()
    world.clients.append(agent(1, turns=1))
    while not any(isinstance(action, EngineAttempt) for action in world.actions.values()):
        world.settle_step()
    (attempt,) = [action for action in world.actions.values() if isinstance(action, EngineAttempt)]
    assert (attempt.call, attempt.position) == (f"{EXECUTION}/0", num)
    assert attempt.position + attempt.max_new_tokens == attempt.sampling.max_new_tokens
    world.settle()
    assert world.clients[0].answers


def test_nothing_of_a_recorded_answer_leaves_before_its_replay_is_durable() -> None:
    world = begun(turns=1)
    world.settle()
    world.preempt()
    world.clients.append(agent(1, turns=1))
    world.arrive(world.clients[0])
    assert not world.actions or not [key for key in world.actions if key.startswith(("parse", "reply"))]
    world.write(len(world.writes))
    assert [key for key in world.actions if key.startswith("parse")]


def test_a_shard_that_dies_in_a_replay_goes_on_with_it() -> None:
    """The claims of the present life are records like all others."""
    world = begun(turns=3)
    world.settle()
    world.preempt()
    world.clients.append(agent(1, turns=5))
    while len(world.of(Replayed)) < 2:
        world.settle_step()
    world.crash(0)
    world.settle()
    assert [one.call for one in world.of(Replayed)] == [f"{EXECUTION}/{place}" for place in range(3)], "none twice"
    assert len(world.clients[0].answers) == 5
    assert not [one for one in world.of(CallBegin) if one.branch]


def test_a_second_preemption_in_a_replay_loses_nothing_either() -> None:
    world = begun(turns=3)
    world.settle()
    answers = list(world.clients[0].answers)
    world.preempt()
    world.clients.append(agent(1, turns=1))
    world.settle()
    world.preempt()
    world.clients.append(agent(2, turns=3))
    world.settle()
    assert world.clients[0].answers == answers
    assert not world.of(CallProgress), "nothing is sampled"


def test_a_request_that_says_something_else_branches_and_is_counted_once() -> None:
    world = begun(turns=3)
    world.settle()
    world.preempt()
    client = agent(1, turns=1)
    world.clients.append(client)
    world.settle()
    client.messages[-1] = replace(client.messages[-1], content="something else")
    client.turns_left = 2
    world.settle()
    assert [one.branch for one in world.of(CallBegin)] == ["diverged", ""]
    assert [one.parent for one in world.of(CallBegin)] == [f"{EXECUTION}/0", f"{EXECUTION}/3"]
    for _ in range(3):
        world.fire_next()
    facts = [fact for report in world.reports for fact in getattr(report, "facts", ())]
    assert len({repr(fact) for fact in facts if isinstance(fact, ReplayDiverged)}) == 1
    assert {one.call for one in world.of(Delivered)} == {f"{EXECUTION}/{place}" for place in (0, 3, 4)}, "what was left behind is not"


def test_agents_side_by_side_find_their_own_calls_whoever_asks_first() -> None:
    world = begun(turns=2)
    world.clients.append(Client(EXECUTION, "other", 2, False))
    world.settle()
    first, other = [list(client.answers) for client in world.clients]
    world.preempt()
    world.clients += [Client(EXECUTION, "late", 2, False, asks={"life": 1}), Client(EXECUTION, "later", 2, False, asks={"life": 1})]
    world.settle()
    assert sorted(client.answers for client in world.clients) == sorted([first, other])
    assert not world.of(CallProgress)


def test_a_process_of_an_earlier_life_is_refused() -> None:
    world = begun(turns=2)
    world.settle()
    old = world.clients[0]
    world.clients.append(agent(1, turns=1))
    world.settle()
    old.turns_left = 1
    world.arrive(old)
    old.turns_left = 0
    world.settle()
    assert old.refused == ["execution_ended"]


def test_the_batch_machine_hears_what_was_at_stake_and_what_was_saved() -> None:
    world = begun(turns=2)
    world.settle()
    num = sum(len(one.output_ids) // 4 for one in world.of(CallProgress))
    world.preempt()
    world.clients.append(agent(1, turns=2))
    world.settle()
    for _ in range(3):
        world.fire_next()
    facts = {type(fact): fact for report in world.reports for fact in getattr(report, "facts", ())}
    saved = {fact for report in world.reports for fact in getattr(report, "facts", ()) if isinstance(fact, CallReplayed)}
    assert facts[FirstCall].execution == EXECUTION, "staleness counts from the first life"
    assert facts[ExecutionTakenUp].num_tokens == num == sum(fact.num_tokens for fact in saved)
    (taken,) = world.of(TakenUp)
    assert taken.known == tuple(Known(f"{EXECUTION}/{place}", len(world.output(f"{EXECUTION}/{place}")), "stop") for place in range(2))


def test_without_a_likeness_nothing_is_replayed() -> None:
    world = begun(turns=1)
    world.settle()
    world.before = [msgspec.structs.replace(one, likeness="") if isinstance(one, CallBegin) else one for one in world.journal]
    world.journal = []
    world.restart()
    world.clients.append(agent(1, turns=1))
    world.settle()
    assert len(world.of(CallBegin)) == 1 and not world.of(Replayed)


def test_what_nobody_takes_up_costs_nothing() -> None:
    world = begun(turns=1)
    world.settle()
    world.preempt()
    assert not world.timers.keys() & {f"abandon/{EXECUTION}/0"} and not world.writes
    assert not world.machine.tokens.get("sampled"), "counted where it was sampled"
