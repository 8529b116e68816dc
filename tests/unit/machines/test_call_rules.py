"""Rules of the call machine, one by one."""

from typing import Any

import pytest

from gyre_hpc.machines.base import Finished, Progressed, Received, Restarted
from gyre_hpc.machines.call.actions import CLIENTS, AttemptEnd, EngineAttempt, Left, Render, Reply
from gyre_hpc.machines.call.routing import Routing, Wanted, route
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered
from gyre_hpc.protocol.supervision import Register
from gyre_hpc.protocol.to_batch import CallEnded, FirstCall, GatewayReport
from gyre_hpc.protocol.to_gateway import Table
from tests.fakes.call_parts import Client, draw, row, tokens_at
from tests.fakes.call_world import CallWorld

LOADS = {"cell-0": 2, "cell-1": 1, "cell-2": 0}


def chosen(*rows: object, barred: frozenset[str] = frozenset(), purpose: str = "train", **more: Any) -> str:
    wanted, pace = Wanted(purpose=purpose, **more), Routing().pace
    picked = route(rows, wanted=wanted, barred=barred, loads=LOADS, prefilling={}, pace=pace)  # type: ignore[arg-type]
    return picked.cell if picked is not None else ""


def test_the_least_loaded_cell_relative_to_its_capacity_is_chosen() -> None:
    assert chosen(row(0), row(1)) == "cell-1"
    assert chosen(row(0, capacity=8), row(1, capacity=2)) == "cell-0"


def test_the_cell_that_has_the_context_is_preferred_until_it_is_full() -> None:
    assert chosen(row(0, capacity=3), row(1), home="cell-0") == "cell-0"
    assert chosen(row(0, capacity=2), row(1), home="cell-0") == "cell-1"
    assert chosen(row(0), row(1), home="cell-0", barred=frozenset({"cell-0"})) == "cell-1"


def test_cells_with_older_weights_or_other_purposes_are_no_choice() -> None:
    assert chosen(row(0, step=1), row(1, step=2), not_older_than=Version(0, 2)) == "cell-1"
    assert chosen(row(0, step=1), not_older_than=Version(0, 2)) == ""
    assert chosen(row(0), row(1, purposes=("warm",)), purpose="warm") == "cell-1"
    assert chosen(row(0), purpose="warm") == ""


def test_a_bar_holds_for_a_term_and_for_a_time_that_doubles() -> None:
    routing = Routing()
    routing.take(0.0, Table(1, 5.0, (row(0),)))

    def free(now: float) -> bool:
        return routing.choose(now, Wanted(purpose="train")) is not None

    first = routing.bar(0.0, "cell-0", 1)
    assert not free(first / 2) and free(first)
    assert routing.bar(first, "cell-0", 1) == 2 * first
    routing.take(first, Table(2, 5.0, (row(0, term=2),)))
    assert free(first)
    routing.take(first, Table(1, 5.0, ()))
    assert free(first), "an older table changes nothing"


def started(world: CallWorld, kind: type) -> list[str]:
    return [key for key, action in world.actions.items() if isinstance(action, kind)]


def begun(stream: bool = False, asks: dict[str, Any] | None = None, **changed: object) -> tuple[CallWorld, Client, str]:
    """A world with one call whose attempt runs; its attempt key."""
    world, client = CallWorld(**changed), Client("train-0-0-0", "main", 1, stream, asks=asks or {})
    world.clients.append(client)
    world.set_table(row(0), row(1))
    world.arrive(client)
    world.finish(started(world, Render)[0])
    return world, client, started(world, EngineAttempt)[0]


def test_the_answer_waits_for_the_disk_and_delivery_for_the_client() -> None:
    world, _, key = begun()
    world.complete(key)
    [world.finish(key) for key in world.others()]
    assert not started(world, Reply)
    kinds = [type(record) for _, record in world.writes]
    assert kinds == [CallBegin, *[CallProgress] * (len(kinds) - 2), CallEnd]
    world.write(len(kinds) - 1)
    assert not started(world, Reply)
    world.write(1)
    (reply,) = started(world, Reply)
    assert not world.writes
    world.finish(reply)
    assert isinstance(world.writes[0][1], Delivered)


def test_a_client_that_left_during_the_last_words_makes_no_delivery() -> None:
    world, client, key = begun()
    world.complete(key)
    [world.finish(key) for key in world.others()]
    world.write(len(world.writes))
    (reply,) = started(world, Reply)
    world.leave(client)
    world.fail(reply, "ClientGone")
    assert not world.writes


def test_tokens_seen_twice_are_counted_and_kept_once() -> None:
    world, _, key = begun(progress_tokens=100)
    (action,) = [world.actions[key]]
    ids = [draw(action.sampling.key, place) for place in range(2)]
    world.tell(Progressed(key, tokens_at(0, ids[:1], Version())))
    world.tell(Progressed(key, tokens_at(0, ids, Version())))
    node = world.shard.trees["train-0-0-0"].nodes[action.call]
    assert (node.num_output, world.shard.tokens["resampled"], world.shard.tokens["sampled"]) == (2, 1, 2)


def test_a_gap_in_the_stream_makes_another_attempt() -> None:
    world, _, key = begun()
    world.tell(Progressed(key, tokens_at(3, [97], Version())))
    (again,) = started(world, EngineAttempt)
    assert again != key
    assert (world.actions[again].cell, world.actions[again].position) == ("cell-1", 0)
    assert world.shard.tokens["lost"] == 1, "it was received, and is neither journaled nor gone on from"


def test_an_engine_that_gives_more_than_asked_is_cut_at_the_budget() -> None:
    world, _, key = begun(max_output_tokens=3)
    world.tell(Progressed(key, tokens_at(0, [97] * 5, Version())))
    world._gone(key)
    world.tell(Finished(key, AttemptEnd("length")))
    assert world.shard.tokens["sampled"] == 3


@pytest.mark.parametrize("asked", [0, 700, 5000])
def test_without_a_limit_of_ours_a_call_is_as_long_as_it_asks_or_as_its_context_has_room(asked: int) -> None:
    world, _, key = begun(asks={"max_new_tokens": asked}, max_output_tokens=0)  # as every harness but our own is configured
    room = world.shard.settings.max_context - sum(map(len, world.actions[key].prompt)) // 4
    assert world.actions[key].max_new_tokens == min(asked or room, room)


def test_an_abort_after_the_last_token_is_not_sampled_beyond() -> None:
    """The end-of-turn token came, the word that it is the end did not."""
    world, client, key = begun()
    world.give(key, 1000)
    world.abort(key)
    assert not started(world, EngineAttempt)
    world.settle()
    assert len(client.answers) == 1
    assert [record.finish for record in world.journal if isinstance(record, CallEnd)] == ["stop"]


def test_sampling_keys_depend_on_execution_and_restart_and_place_among_equal_prompts() -> None:
    keys = []
    for execution in ("train-0-0-0", "train-0-0-0-r1", "train-0-0-1"):
        world = CallWorld()
        world.set_table(row(0))
        for _ in range(2):
            world.clients.append(Client(execution, "main", 1, False))
            world.arrive(world.clients[-1])
        for key in started(world, Render):
            world.finish(key)
        keys += [record.sampling.key for _, record in world.writes if isinstance(record, CallBegin)]
    assert len(set(keys)) == len(keys) == 6
    other = CallWorld(run_seed=1)
    other.clients.append(Client("train-0-0-0", "main", 1, False))
    other.arrive(other.clients[0])
    other.finish(started(other, Render)[0])
    assert other.writes[0][1].sampling.key not in keys


def test_a_template_that_does_not_extend_the_answer_makes_a_branch_from_scratch() -> None:
    world, client, _ = begun()
    world.settle()
    client.turns_left = 1
    world.arrive(client)
    suffixes = [key for key in started(world, Render) if world.actions[key].ended is not None]
    world.fail(suffixes[0], "ValueError")
    (scratch,) = started(world, Render)
    assert (world.actions[scratch].ended, len(world.actions[scratch].messages)) == (None, 3)
    world.settle()
    second = list(world.begins().values())[1]
    assert (second.parent, second.branch) == (None, "template_drift")


def test_messages_no_template_takes_are_an_error_and_no_call() -> None:
    world, client = CallWorld(), Client("train-0-0-0", "main", 1, False)
    world.clients.append(client)
    world.arrive(client)
    world.fail(started(world, Render)[0], "KeyError")
    [world.finish(key) for key in world.others()]
    assert client.refused == ["invalid_messages"]
    assert not world.shard.live and not world.shard.conns and not world.writes


def test_facts_are_sent_again_until_acknowledged() -> None:
    world, _, _ = begun()
    world.settle()
    while not (reports := [report for report in world.reports if isinstance(report, GatewayReport) and len(report.facts) == 2]):
        world.fire_next()
    first, second = reports[-1].facts
    assert first == FirstCall("train-0-0-0", Version())
    assert isinstance(second, CallEnded) and second.num_sampled == world.shard.tokens["sampled"]
    world.set_table(row(0), acked=0)
    world.reports.clear()
    world.fire_next()
    while not world.reports or not isinstance(world.reports[-1], GatewayReport):
        world.fire_next()
    assert (world.reports[-1].first_fact, world.reports[-1].facts) == (1, (second,))
    assert world.reports[-1].table == 2


def test_evaluation_is_counted_apart() -> None:
    world = CallWorld()
    world.clients.append(Client("eval-0-0-0", "main", 1, False))
    world.set_table(row(0))
    world.settle()
    assert set(world.shard.tokens) - {"resampled", "lost"} == {"eval_sampled"}


def test_warm_start_goes_to_scripted_rows_only() -> None:
    world = CallWorld()
    world.clients.append(Client("warm-0-0-0", "main", 1, False))
    world.set_table(row(0))
    world.arrive(world.clients[0])
    world.finish(started(world, Render)[0])
    assert not started(world, EngineAttempt)
    world.set_table(row(0), row(1, purposes=("warm",)))
    assert world.actions[started(world, EngineAttempt)[0]].cell == "cell-1"


def test_registration_and_reports_begin_with_the_first_input() -> None:
    world = CallWorld()
    assert isinstance(world.reports[0], Register)
    assert isinstance(world.reports[1], GatewayReport)


def test_identical_requests_after_the_connection_closed_take_turns() -> None:
    """Two equal calls lost their clients: two retries get one each."""
    world = CallWorld()
    world.set_table(row(0))
    clients = [Client("train-0-0-0", "main", 1, False) for _ in range(2)]
    world.clients += clients
    for client in clients:
        world.arrive(client)
    for client in clients:
        world.leave(client)
    for client in clients:
        world.arrive(client)
    world.settle()
    assert len(world.begins()) == 2
    assert sorted(client.answers[0] for client in clients) == sorted(
        {call: "".join(map(chr, world.output(call)[:-1])) for call in world.begins()}.values()
    )


def test_a_request_that_left_while_it_was_rendered_is_found_again() -> None:
    world, client = CallWorld(), Client("train-0-0-0", "main", 1, False)
    world.clients.append(client)
    world.arrive(client)
    world.leave(client)
    world.arrive(client)
    assert len(started(world, Render)) == 1


def test_a_restarted_machine_knows_ended_executions() -> None:
    world, _, _ = begun()
    world.set_table(row(0), ended=("train-0-0-0",))
    world.write(len(world.writes))
    world.tell(Received(CLIENTS, Left("nobody")))
    fresh = CallWorld()
    fresh.tell(Restarted(tuple(world.journal)))
    assert "train-0-0-0" in fresh.shard.ended and fresh.shard.ended.num_names == 1
    assert not fresh.shard.trees


@pytest.mark.parametrize("cut", range(12))
def test_a_restart_at_any_record_leads_to_the_same_tokens(cut: int) -> None:
    world = CallWorld()
    world.clients.append(Client("train-0-0-0", "main", 3, True))
    world.set_table(row(0))
    world.settle()
    whole = {call: world.output(call) for call in world.begins()}
    again = CallWorld()
    again.clients.append(Client("train-0-0-0", "main", 3, True))
    again.set_table(row(0))
    again.settle(records=cut)
    again.crash(0)
    again.settle()
    assert {call: again.output(call) for call in again.begins()} == whole


def test_records_written_twice_count_once() -> None:
    world = CallWorld()
    world.clients.append(Client("train-0-0-0", "main", 2, False))
    world.set_table(row(0))
    world.settle()
    once, twice = CallWorld(), CallWorld()
    once._begin(tuple(world.journal))
    twice._begin(tuple(record for record in world.journal for _ in range(2)))
    assert twice.shard.outbox.facts == once.shard.outbox.facts
    assert twice.shard.tokens == once.shard.tokens
    assert [bytes(node.output) for node in twice.shard.trees["train-0-0-0"].nodes.values()] == [
        bytes(node.output) for node in once.shard.trees["train-0-0-0"].nodes.values()
    ]
