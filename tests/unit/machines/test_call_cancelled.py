"""Cancelled calls: given up for good, and their client is told so, now or when it asks again."""

import pytest

from gyre_hpc.machines.base import Received
from gyre_hpc.machines.call.actions import CLIENTS, Cancel, Confirm, EngineAttempt, KeepAlive, Refuse
from gyre_hpc.protocol.journal import CallEnd
from tests.fakes.call_asking import CALL, EXECUTION, a_world, inquire
from tests.fakes.call_parts import Client


def test_a_running_call_is_cancelled_and_a_finished_one_is_not() -> None:
    world = a_world()
    client = Client(EXECUTION, "main", 1, False, asks={"store": True})
    world.clients.append(client)
    world.arrive(client)
    world.finish(next(key for key in world.others() if key.startswith("render")))
    world.tell(Received(CLIENTS, Cancel("q", EXECUTION, CALL)))
    assert not [action for action in world.actions.values() if isinstance(action, EngineAttempt | Confirm)]
    world.write(len(world.writes))
    assert [action.conn for action in world.actions.values() if isinstance(action, Confirm)] == ["q"]
    for key in world.others():
        world.finish(key)
    assert client.refused == ["cancelled"]
    assert [record.finish for record in world.journal if isinstance(record, CallEnd)] == ["abandoned"]
    client.turns_left = 1
    world.settle()
    refused = inquire(world, Cancel)
    assert isinstance(refused, Refuse) and refused.code == "already_ended"
    missing = inquire(world, Cancel, f"{EXECUTION}/9")
    assert isinstance(missing, Refuse) and missing.code == "not_found"


@pytest.mark.parametrize("why", ["held", "away", "rendering", "restart"])
def test_a_client_that_could_not_be_told_of_a_cancellation_is_told_when_it_asks_again(why: str) -> None:
    """Clients ask again by themselves after a broken connection: that is no wish to have the call after all."""
    world = a_world()
    client = Client(EXECUTION, "main", 1, False, asks={"store": True})
    world.clients.append(client)
    world.arrive(client)
    if why == "held":
        while not any(isinstance(action, KeepAlive) for action in world.actions.values()):
            world.fire_next()
    if why != "rendering":
        world.finish(next(key for key in world.others() if key.startswith("render")))
    if why == "restart":
        world.crash(len(world.writes))
    elif why != "held":
        world.leave(client)
    world.inquire(Cancel, CALL)
    if why == "held":
        world.leave(client)
    world.arrive(client)
    assert not [action for action in world.actions.values() if isinstance(action, EngineAttempt)]
    world.finish(next(key for key, action in world.actions.items() if getattr(action, "conn", "") == client.conn))
    assert client.refused == ["cancelled"]
    # Who asks once more, knowing it, wants it.
    world.settle()
    assert len(client.replies) == 1


def test_a_cancellation_nobody_asked_about_is_forgotten_in_time() -> None:
    world = a_world()
    client = Client(EXECUTION, "main", 1, False, asks={"store": True})
    world.clients.append(client)
    world.arrive(client)
    world.finish(next(key for key in world.others() if key.startswith("render")))
    world.leave(client)
    world.inquire(Cancel, CALL)
    world.now += world.settings.abandon_s
    world.settle()
    assert (client.refused, len(client.replies)) == ([], 1)
