"""Requests to a gateway machine's world, one after the other, and questions about answers it has stored."""

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.base import Received
from gyre_hpc.machines.call.actions import CLIENTS
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"
CALL = f"{EXECUTION}/0"


def ask(
    world: CallWorld,
    *messages: Message,
    previous: str = "",
    execution: str = EXECUTION,
    store: bool = True,
    tag: str = "",
    echo: tuple[bytes, ...] = (),
) -> Client:
    """One request to its end; `tag` makes its identity another."""
    client = Client(execution, f"main{tag}", 1, False, messages=list(messages))
    client.asks = {"store": store, "previous": previous, "echo": echo or (tag.encode(),)}
    world.clients.append(client)
    world.settle()
    return client


def user(text: str) -> Message:
    return Message(role="user", content=text)


def a_world() -> CallWorld:
    world = CallWorld()
    world.set_table(row(0))
    return world


def inquire(world: CallWorld, kind: type, call: str = CALL, execution: str = EXECUTION) -> object:
    """What a request about a stored answer gets."""
    world.num_conns += 1
    conn = f"q{world.num_conns}"
    world.tell(Received(CLIENTS, kind(conn, execution, call)))
    world.write(len(world.writes))
    (key, action) = next((key, action) for key, action in world.actions.items() if getattr(action, "conn", "") == conn)
    world.finish(key)
    world.write(len(world.writes))
    return action
