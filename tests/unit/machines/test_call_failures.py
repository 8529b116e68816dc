"""Actions of the call machine that fail: what a client hears has no holes, and nothing that is late ends a gateway."""

import pytest

from gyre_hpc.machines.base import TimerFired
from gyre_hpc.machines.call.actions import EngineAttempt, HangUp, KeepAlive, Render, Reply, Say
from gyre_hpc.protocol.journal import CallBegin, Delivered
from tests.fakes.call_parts import STOP, Client, row
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"
CALL = f"{EXECUTION}/0"
WORDS = [*b"one two three four", STOP]


def started(world: CallWorld, kind: type) -> list[str]:
    return [key for key, action in world.actions.items() if isinstance(action, kind)]


def rendering() -> tuple[CallWorld, Client, str]:
    """A call whose prompt is being rendered; the key of that."""
    world, client = CallWorld(), Client(EXECUTION, "main", 1, True)
    world.scripts[CALL] = WORDS
    world.clients.append(client)
    world.set_table(row(0), row(1))
    world.arrive(client)
    return world, client, started(world, Render)[0]


def speaking() -> tuple[CallWorld, Client, str]:
    """The first piece of an answer is on its way to its client; the key of that."""
    world, client, key = rendering()
    world.finish(key)
    say_on(world)
    return world, client, started(world, Say)[0]


def say_on(world: CallWorld) -> None:
    """Some more tokens become durable and are read."""
    world.give(started(world, EngineAttempt)[0], 4)
    world.write(len(world.writes))
    [world.finish(key) for key in world.others() if key.startswith("delta/")]


def hung_up(world: CallWorld, conn: str) -> bool:
    return [world.actions[key] for key in started(world, HangUp)] == [HangUp(conn)]


def test_after_a_piece_that_was_not_said_nothing_more_is_said_on_its_connection() -> None:
    world, client, key = speaking()
    conn = client.conn
    world.fail(key, "ClientGone")
    assert hung_up(world, conn)
    say_on(world)
    assert not started(world, Say)
    assert f"alive/{conn}" not in world.timers and f"abandon/{CALL}" in world.timers, "as if its client had left"


def test_the_client_that_missed_a_piece_joins_its_call_and_hears_all_of_it() -> None:
    world, client, key = speaking()
    world.fail(key, "ClientGone")
    world.leave(client)
    world.settle()
    assert client.answers == ["one two three four"]
    assert [type(record) for record in world.journal].count(CallBegin) == 1, "the same call"
    assert world.output(CALL) == WORDS


def test_an_answer_whose_piece_was_not_said_is_not_delivered() -> None:
    world, client, key = speaking()
    conn = client.conn
    world.complete(started(world, EngineAttempt)[0])
    world.write(len(world.writes))
    [world.finish(key) for key in world.others() if key.startswith("parse/")]
    world.write(len(world.writes))
    (reply,) = started(world, Reply)
    world.fail(key, "ClientGone")
    assert hung_up(world, conn)
    world.finish(reply)
    assert not any(isinstance(record, Delivered) for _, record in world.writes)


def test_a_piece_that_fails_after_its_client_left_changes_nothing() -> None:
    world, client, key = speaking()
    world.leave(client)
    world.fail(key, "ClientGone")
    assert not started(world, HangUp) and f"abandon/{CALL}" in world.timers


def test_a_keep_alive_that_fails_takes_nothing_from_the_answer() -> None:
    world, client, _ = rendering()
    world.tell(TimerFired(f"alive/{client.conn}"))
    world.fail(started(world, KeepAlive)[0], "ClientGone")
    world.settle()
    assert client.answers == ["one two three four"]


@pytest.mark.parametrize("how", ["abandoned", "overdue", "over"])
def test_a_prompt_that_fails_after_its_call_was_given_up_ends_no_gateway(how: str) -> None:
    world, client, key = rendering()
    if how == "abandoned":
        world.leave(client)
        world.tell(TimerFired(f"abandon/{CALL}"))
    elif how == "overdue":
        world.tell(TimerFired(f"deadline/{CALL}"))
    else:
        world.set_table(row(0), ended=(EXECUTION,))
    world.fail(key, "ValueError")
    assert CALL not in world.shard.live
