"""The call machine under random schedules: losses, aborts, refusals, late words, full disks, crashes, impatient clients."""

import random
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre_hpc.machines.call.actions import Cancel, EngineAttempt, Forget, Retrieve
from gyre_hpc.protocol.journal import CallBegin, CallEnd
from gyre_hpc.protocol.to_batch import CallEnded, FirstCall
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld

STEPS = 120


def choices(world: CallWorld, dice: random.Random) -> list[Callable[[], None]]:
    """Everything that could happen now."""
    found: list[Callable[[], None]] = [world.fire_next]
    for client in world.clients:
        if client.wants:
            found.append(lambda client=client: world.arrive(client))
        elif client.conn and dice.random() < 0.15:
            found.append(lambda client=client: world.leave(client))
    found += [lambda key=key: world.finish(key) for key in world.others()]
    for key in [key for key, action in world.actions.items() if isinstance(action, EngineAttempt)]:
        found.append(lambda key=key: world.give(key, dice.randint(1, 6)))
        found.append(lambda key=key: world.complete(key))
        if dice.random() < 0.3:
            found.append(lambda key=key: world.abort(key))
            found.append(lambda key=key: world.fail(key, dice.choice(["CellLost", "TimeoutError"])))
        if dice.random() < 0.3 and not world.given.get(key):
            found.append(lambda key=key: world.fail(key, "EngineBusy"))
    if world.writes:
        found.append(lambda: world.write(dice.randint(1, len(world.writes))))
        if dice.random() < 0.1:
            found.append(world.fail_writes)
    if world.over and dice.random() < 0.2:
        found.append(lambda: world.late_word(dice.randrange(len(world.over))))
    if dice.random() < 0.3:
        found.append(lambda: random_table(world, dice))
    if dice.random() < 0.2 and (calls := sorted(world.begins())):
        kind = dice.choice([Retrieve, Retrieve, Forget, Cancel])
        found.append(lambda: world.inquire(kind, dice.choice(calls)))
    if dice.random() < 0.05:
        found.append(lambda: world.crash(dice.randint(0, len(world.writes))))
    return found


def random_table(world: CallWorld, dice: random.Random) -> None:
    rows = [row(place, term=dice.randint(1, 3), step=dice.randint(0, 2)) for place in range(3) if dice.random() < 0.7]
    world.set_table(*rows, acked=dice.choice([-1, world.shard.outbox.first_fact]) if world.shard.outbox.facts else -1)


def play(dice: random.Random, steps: int) -> CallWorld:
    world = CallWorld(abandon_s=0.5, call_deadline_s=4.0)
    for number in range(4):
        # Two of them are the same agent twice: identical requests side by side.
        client = Client(f"train-0-0-{number % 2}", "main" if number < 3 else "sub", turns_left=2, stream=number % 2 == 0)
        client.asks = {"store": number != 1, "stop": ("q", "xy") if number == 3 else ()}
        world.clients.append(client)
    world.set_table(row(0), row(1))
    for _ in range(steps):
        dice.choice(choices(world, dice))()
        world.check()
    world.set_table(*(row(place, term=9, step=3) for place in range(3)))
    world.settle()
    world.check()
    world.check_rest()
    return world


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.randoms(use_true_random=False))
def test_tokens_are_sampled_once_in_order_and_every_agent_gets_its_answers(dice: random.Random) -> None:
    world = play(dice, STEPS)
    assert all(len(client.answers) == 2 for client in world.clients)


def test_many_long_schedules() -> None:
    for seed in range(60):
        world = play(random.Random(seed), 300)
        assert all(len(client.answers) == 2 for client in world.clients), seed
        check_facts(world)


def check_facts(world: CallWorld) -> None:
    """Facts follow from the journal: one FirstCall per execution, tokens of CallEnded add up to what was sampled."""
    facts = world.shard.outbox
    everything = CallWorld()
    everything._begin(tuple(world.journal))
    rebuilt = everything.shard.outbox.facts
    assert rebuilt[facts.first_fact :] == facts.facts
    assert len([fact for fact in rebuilt if isinstance(fact, FirstCall)]) == len({begin.execution for begin in world.begins().values()})
    for call in world.begins():
        ended = [fact for fact in rebuilt if isinstance(fact, CallEnded) and fact.call == call]
        ends = [record for record in world.journal if isinstance(record, CallEnd) and record.call == call]
        assert sum(fact.num_sampled for fact in ended) == (ends[-1].num_output if ends else 0)


def test_the_same_history_gives_the_same_effects() -> None:
    one, other = play(random.Random(5), 200), play(random.Random(5), 200)
    assert one.journal == other.journal
    assert one.notes == other.notes
    assert any(isinstance(record, CallBegin) for record in one.journal)
