"""What machines keep does not grow with executions that are over; a shard keeps a name of each until its whole group is over."""

from typing import Any

from gyre_hpc.machines.base import Effect, Persist, Persisted, Received
from gyre_hpc.machines.batch.records import AttemptBegun
from gyre_hpc.protocol.identity import GroupId
from gyre_hpc.protocol.to_batch import Ended, ExecutionTakenUp, GatewayReport, RunnerReport, ScoreState
from gyre_hpc.protocol.to_gateway import Table
from gyre_hpc.protocol.train_groups import TrainGroups
from tests.fakes.batch_bench import GROUPS, HISTORY, machine, tell
from tests.fakes.call_parts import Client, row
from tests.fakes.call_world import CallWorld


def sizes(owner: object) -> dict[str, int]:
    """Of every container in `owner` and in the parts of it that are ours."""
    found: dict[str, int] = {}
    names = [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())] or list(vars(owner))
    for name in names:
        value: Any = getattr(owner, name)
        if hasattr(value, "__len__") and not isinstance(value, str | bytes):
            found[name] = len(value)
        elif type(value).__module__.startswith("gyre_hpc.machines"):
            found |= {f"{name}.{inner}": size for inner, size in sizes(value).items()}
    return found


def play(world: CallWorld, first: int, num: int) -> None:
    """Executions that run, end, and of whom everybody knows all."""
    for number in range(first, first + num):
        client = Client(f"train-0-{number}-0", "main", 3, number % 2 == 0)
        world.clients.append(client)
        world.arrive(client)
        world.settle()
        world.set_table(row(0), ended=(client.execution,), acked=world.shard.outbox.first_fact + len(world.shard.outbox.facts) - 1)
        world.settle()
        world.clients.remove(client)


def test_a_gateway_keeps_nothing_but_the_names_of_executions_whose_groups_are_not_over() -> None:
    world = CallWorld()
    world.set_table(row(0))
    play(world, 0, 4)
    before, num_timers = sizes(world.shard), len(world.timers)
    play(world, 4, 20)
    after = sizes(world.shard)
    # How groups opened is remembered until they are over, of the newest ones.
    grown = {name: (before[name], size) for name, size in after.items() if size > before[name] and name != "homes._openings"}
    assert grown == {"ended._names": (4, 24)}
    assert len(world.timers) == num_timers and not world.actions
    over = TrainGroups.of(24, [GroupId("train", 0, number) for number in range(23)])
    world.tell(Received("controller", Table(world.table + 1, 5.0, (row(0),), over=over)))
    assert world.shard.ended.num_names == len(world.shard.homes._openings) == 1


def settle(made: Any, effects: list[Effect]) -> None:
    """Everything is durable at once."""
    while effects:
        effects = [later for one in effects if isinstance(one, Persist) for later in made.handle(0.5, Persisted(one.key))]


def test_the_batch_machine_keeps_nothing_of_the_lives_and_places_of_executions_that_ended() -> None:
    made, effects = machine(*HISTORY, AttemptBegun(2), attempt=2)
    settle(made, effects)
    executions = [f"{id}-0" for id in GROUPS]
    facts = tuple(ExecutionTakenUp(execution, 1, 10, 5.0) for execution in executions)
    settle(made, tell(made, 0.6, GatewayReport("gateway-0", 1, 1, -1, 0, facts=facts), "gateway-0"))
    settle(made, tell(made, 0.7, RunnerReport("runner-0", 1, 1, -1, capacity=4)))
    state = made.state
    assert len(state.spared_s) == len(state.assignments) == len(state.groups.lives) == len(GROUPS)
    ends = tuple(Ended(execution, ScoreState.scored, 1.0, life=1) for execution in executions)
    settle(made, tell(made, 0.8, RunnerReport("runner-0", 1, 2, -1, capacity=4, ended=ends)))
    kept = (state.spared_s, state.assignments, state.groups.lives, state.groups.live, state.restarting, state.pending, state.unplaced)
    assert not any(kept), kept
