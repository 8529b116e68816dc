"""Where a call's context is: terms, weights, moves, how groups open; and the books of a shard about its cells."""

from typing import Any

import pytest

from gyre_hpc.machines.base import Finished, Progressed
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt, Render, Tokens
from gyre_hpc.machines.call.homes import MOST_OPENINGS, Home, Homes, num_common
from gyre_hpc.machines.call.node import Node
from gyre_hpc.machines.call.routing import Routing, Wanted
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import Sampling
from gyre_hpc.protocol.tensors import pack_ids as pack
from gyre_hpc.protocol.to_gateway import Table
from tests.fakes.call_parts import Client, row, tokens_at
from tests.fakes.call_world import CallWorld

ROWS = {"cell-0": row(0), "cell-1": row(1)}


def node(name: str = "train-0-0-0/0", parent: Node | None = None, suffix: list[int] | None = None, **known: Any) -> Node:
    ids = pack(suffix or [1, 2, 3])
    before = parent.num_prompt + parent.num_output if parent is not None else 0
    made = Node(
        call=name,
        execution=name.rpartition("/")[0],
        parent=parent,
        suffix=ids,
        role="main",
        thread="",
        request_hash="",
        context="",
        sampling=Sampling(),
        num_prompt=before + len(ids) // 4,
    )
    for field, value in known.items():
        setattr(made, field, value)
    return made


def test_the_newest_cell_of_the_same_term_has_the_context() -> None:
    first = node(cells=["cell-1"], term=1, newest=Version(0, 0), output=bytearray(pack([4, 5])))
    second = node("train-0-0-0/1", first)
    assert Homes(False).home_of(second, ROWS) == Home("cell-1", 5)
    second.cells, second.term, second.newest = ["cell-0"], 1, Version(0, 0)
    assert Homes(False).home_of(second, ROWS) == Home("cell-0", 8)


@pytest.mark.parametrize(("term", "is_home"), [(1, True), (0, False), (None, True)])
def test_a_cell_that_was_away_has_nothing_any_more(term: int | None, is_home: bool) -> None:
    one = node(cells=["cell-1"], term=term, newest=Version(0, 0))
    assert Homes(False).home_of(one, ROWS).cell == ("cell-1" if is_home else "")


def test_what_its_newest_cell_forgot_an_older_one_may_still_have() -> None:
    first = node(cells=["cell-0"], term=1, newest=Version(0, 0))
    second = node("train-0-0-0/1", first, cells=["cell-1"], term=0, newest=Version(0, 0))
    assert Homes(False).home_of(node("train-0-0-0/2", second), ROWS) == Home("cell-0", 3)


def test_other_weights_count_where_engines_keep_old_kv() -> None:
    one = node(cells=["cell-1"], term=1, newest=Version(0, 1))
    assert Homes(False).home_of(one, ROWS) == Home()
    assert Homes(True).home_of(one, ROWS) == Home("cell-1", 3)


def test_kv_that_moved_is_where_it_moved_to() -> None:
    one = node(cells=["cell-1"], moved_to="cell-0", term=1, newest=Version(0, 0))
    assert Homes(False).home_of(one, ROWS).cell == "cell-0"
    assert Homes(False).home_of(one, {"cell-1": row(1)}) == Home(), "not where it was"


def test_executions_of_a_group_begin_where_the_newest_of_them_began() -> None:
    homes = Homes(False)
    homes.opened(node("train-0-3-0/0", suffix=[1, 2, 3, 4]), row(1))
    assert homes.home_of(node("train-0-3-7-r1/0", suffix=[1, 2, 9]), ROWS) == Home("cell-1", 2)
    assert homes.home_of(node("train-0-4-7/0", suffix=[1, 2, 9]), ROWS) == Home(), "another group"
    assert homes.home_of(node("train-0-3-7/0", suffix=[1], role="helper"), ROWS) == Home(), "another role"
    assert homes.home_of(node("train-0-3-7/0"), {"cell-1": row(1, term=2)}) == Home(), "it was away"


def test_only_the_newest_openings_are_remembered() -> None:
    homes = Homes(False)
    for group in range(MOST_OPENINGS + 1):
        homes.opened(node(f"train-0-{group}-0/0"), row(0))
    assert homes.home_of(node("train-0-0-1/0"), ROWS) == Home()
    assert homes.home_of(node("train-0-1-1/0"), ROWS) == Home("cell-0", 3)


@pytest.mark.parametrize(
    ("one", "other", "num"), [([], [], 0), ([1], [2], 0), ([1, 2, 3], [1, 2], 2), ([1, 2, 3], [1, 2, 4], 2), ([7] * 9, [7] * 9, 9)]
)
def test_common_tokens_are_counted(one: list[int], other: list[int], num: int) -> None:
    assert num_common(pack(one), pack(other)) == num


def test_what_is_on_its_way_is_charged_and_given_back() -> None:
    routing = Routing()
    routing.take(0.0, Table(1, 5.0, (row(0),)))
    wanted = Wanted(purpose="train", num_tokens=100, home="cell-0", held=60)
    routing.sent(0.0, "a", row(0), wanted, 0)
    routing.sent(0.0, "b", row(0), Wanted(purpose="train", num_tokens=100, home="cell-1", held=60), 0)
    assert (routing.loads["cell-0"], routing.prefilling["cell-0"]) == (2, 140)
    routing.began(0.5, "a", 38)
    assert routing.prefilling["cell-0"] == 100
    routing.ended(2.0, "a", 5)
    routing.over("a")
    routing.over("b")
    assert not any(routing.loads.values()) and not any(routing.prefilling.values())
    assert (routing.pace.service_s, routing.pace.output) == (2.0, 5.0)


def test_a_shard_measures_its_calls_and_forgets_a_home_that_was_away() -> None:
    world, client = CallWorld(max_output_tokens=200), Client("train-0-0-0", "main", 1, False)
    world.scripts["train-0-0-0/0"] = [97 + place % 26 for place in range(300)]
    world.clients.append(client)
    world.set_table(row(0))
    world.arrive(client)
    (render,) = [key for key, action in world.actions.items() if isinstance(action, Render)]
    world.finish(render)
    ((key, action),) = [(key, action) for key, action in world.actions.items() if isinstance(action, EngineAttempt)]
    given = [world.token(action, place) for place in range(4)]
    told = tokens_at(0, given, action.version)
    world.tell(Progressed(key, Tokens(told.start, told.ids, told.logprobs, told.spans, told.oldest_kv, 0)))
    recorded = world.shard.trees["train-0-0-0"].nodes["train-0-0-0/0"]
    assert recorded.term == 1 and world.shard.homes.home_of(recorded, world.shard.routing.rows).cell == "cell-0"
    world.set_table(row(0, term=2), row(1))
    assert world.shard.homes.home_of(recorded, world.shard.routing.rows) == Home()
    world.tell(Finished(key, AttemptEnd(finish="abort", digest="")))
    again = [action for name, action in world.actions.items() if isinstance(action, EngineAttempt) and name != key]
    assert [action.position for action in again] == [4]
    assert sum(world.shard.routing.loads.values()) == 1
    assert world.shard.routing.prefilling[again[0].cell] == recorded.num_prompt + 4, "nobody has its context"
