"""Where a call goes on after its KV moved to another cell: told by the engine that aborts it, or by the routing table."""

from gyre_hpc.machines.base import Progressed
from gyre_hpc.machines.call.actions import EngineAttempt, Render, Tokens
from gyre_hpc.machines.call.node import Node
from gyre_hpc.machines.call.routing import Routing, Wanted
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallProgress
from gyre_hpc.protocol.to_gateway import Table
from tests.fakes.call_parts import Client, row, tokens_at
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"
CALL = f"{EXECUTION}/0"
# 300 letters, so that whatever a test does to the call it is not over.
SCRIPT = [97 + place % 26 for place in range(300)]


def started(world: CallWorld, kind: type) -> list[str]:
    return [key for key, action in world.actions.items() if isinstance(action, kind)]


def attempt(world: CallWorld) -> tuple[str, EngineAttempt]:
    (key,) = started(world, EngineAttempt)
    return key, world.actions[key]


def sampling(*places: int) -> tuple[CallWorld, Client]:
    """A call that has four tokens of cell 0; cells 1 to 3 are in the table too, cell 1 with no load."""
    world, client = CallWorld(max_output_tokens=200, progress_tokens=64), Client(EXECUTION, "main", 2, False)
    world.scripts[CALL] = SCRIPT
    world.clients.append(client)
    world.set_table(row(0))
    world.arrive(client)
    world.finish(started(world, Render)[0])
    world.give(attempt(world)[0], 4)
    world.set_table(*(row(place) for place in places or (0, 1, 2, 3)))
    return world, client


def give(world: CallWorld, cached: int) -> None:
    key, action = attempt(world)
    told = tokens_at(action.position, [world.token(action, action.position)], action.version)
    world.tell(Progressed(key, Tokens(told.start, told.ids, told.logprobs, told.spans, told.oldest_kv, cached)))


def home(world: CallWorld, node: Node) -> str:
    return world.shard.homes.home_of(node, world.shard.routing.rows).cell


def length(action: EngineAttempt) -> int:
    return sum(map(len, action.prompt)) // 4


def test_an_aborted_call_goes_where_its_kv_went_from_the_tokens_so_far() -> None:
    world, client = sampling()
    world.abort(attempt(world)[0], moved_to="cell-3")
    assert (attempt(world)[1].cell, attempt(world)[1].position) == ("cell-3", 4)
    world.settle()
    assert len(client.answers) == 2 and world.shard.tokens["lost"] == world.shard.tokens["resampled"] == 0
    assert next(record.cell for record in world.journal if isinstance(record, CallProgress)) == "cell-0", "who gave them"


def test_without_a_word_of_the_engine_it_goes_by_load() -> None:
    world, _ = sampling()
    world.abort(attempt(world)[0])
    assert attempt(world)[1].cell == "cell-1"


def test_reprefilled_counts_only_what_did_not_move() -> None:
    moved, anew = sampling()[0], sampling()[0]
    moved.abort(attempt(moved)[0], moved_to="cell-3")
    anew.abort(attempt(anew)[0])
    context = length(attempt(moved)[1])
    give(moved, cached=context - 3)
    give(anew, cached=0)
    assert moved.shard.tokens["reprefilled"] == 3
    assert anew.shard.tokens["reprefilled"] == context


def test_a_target_that_is_not_in_the_table_or_is_barred_is_no_choice() -> None:
    world, _ = sampling(0, 1, 2)
    world.abort(attempt(world)[0], moved_to="cell-3")
    assert attempt(world)[1].cell == "cell-1"
    world, _ = sampling()
    world.shard.routing.bar(world.now, "cell-3", 1)
    world.abort(attempt(world)[0], moved_to="cell-3")
    assert attempt(world)[1].cell == "cell-1"


def test_a_target_with_older_weights_than_the_call_has_tokens_of_is_no_choice() -> None:
    world, _ = sampling(0)
    world.set_table(row(0, step=1))
    key, action = attempt(world)
    world.tell(Progressed(key, tokens_at(4, [world.token(action, 4)], Version(0, 1))))
    world.set_table(row(0, step=1), row(2, step=1), row(3, step=0))
    world.abort(key, moved_to="cell-3")
    assert attempt(world)[1].cell == "cell-2"


def test_the_cell_that_ended_it_is_barred_for_its_term_alone() -> None:
    world, _ = sampling()
    world.abort(attempt(world)[0], moved_to="cell-3")
    barred = world.shard.routing
    assert barred.choose(world.now, Wanted(purpose="train", home="cell-0")).cell != "cell-0"  # type: ignore[union-attr]
    world.set_table(row(0, term=2), row(1), row(2), row(3))
    assert barred.choose(world.now, Wanted(purpose="train", home="cell-0")).cell == "cell-0"  # type: ignore[union-attr]


def test_the_next_call_of_an_agent_goes_where_the_kv_went_while_it_used_a_tool() -> None:
    world, client = sampling(0, 1, 2, 3)
    world.scripts[CALL] = SCRIPT[:5]
    world.complete(attempt(world)[0])
    while len(client.answers) < 1:
        world.write(1) if world.writes else world.finish(world.others()[0])
    world.set_table(row(1), row(2), row(3), moved=((CALL, "cell-2"), ("train-7-7-7/3", "cell-1"), (f"{EXECUTION}/9", "cell-1")))
    world.arrive(client)
    world.finish(started(world, Render)[0])
    assert attempt(world)[1].cell == "cell-2"


def test_a_move_is_news_once_and_a_call_that_went_on_since_keeps_its_home() -> None:
    world, _ = sampling()
    world.abort(attempt(world)[0], moved_to="cell-3")
    give(world, cached=0)
    node = world.shard.trees[EXECUTION].nodes[CALL]
    world.set_table(row(1), row(2), row(3), moved=((CALL, "cell-1"),))
    assert home(world, node) == "cell-3", "it runs there"
    world.abort(attempt(world)[0])
    world.set_table(row(1), row(2, term=9), moved=((CALL, "cell-1"),))
    assert (node.moved_to, node.cells[-1]) == ("", "cell-3"), "an old move says nothing new"


def test_the_cell_that_went_on_with_it_is_its_home_whatever_was_meant() -> None:
    world, _ = sampling()
    world.shard.routing.bar(world.now, "cell-3", 1)
    world.abort(attempt(world)[0], moved_to="cell-3")
    give(world, cached=0)
    assert home(world, world.shard.trees[EXECUTION].nodes[CALL]) == "cell-1"


def test_only_the_moves_that_the_table_before_did_not_tell_are_news() -> None:
    routing = Routing()
    routing.take(0.0, Table(1, 5.0, moved=(("a/0", "cell-1"),)))
    routing.take(0.1, Table(2, 5.0, moved=(("a/0", "cell-1"), ("b/0", "cell-2"))))
    assert routing.moved == {("b/0", "cell-2")}
    routing.take(0.2, Table(3, 5.0, moved=(("a/0", "cell-2"),)))
    assert routing.moved == {("a/0", "cell-2")}, "it moved on"


def test_a_call_that_waits_for_a_cell_takes_the_one_that_has_its_kv() -> None:
    world, _ = sampling(0)
    world.abort(attempt(world)[0])
    assert not started(world, EngineAttempt), "the only cell is barred"
    world.set_table(row(1), row(2), moved=((CALL, "cell-2"),))
    assert attempt(world)[1].cell == "cell-2"
