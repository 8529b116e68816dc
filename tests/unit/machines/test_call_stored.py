"""Stored answers: conversations go on from them, they can be fetched and forgotten, all of it after a restart too."""

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.base import Received
from gyre_hpc.machines.call.actions import CLIENTS, Confirm, EngineAttempt, Forget, Left, Refuse, Render, Reply, Retrieve
from gyre_hpc.protocol.journal import CallBegin, CallEnd, Forgotten, Stored
from tests.fakes.call_asking import CALL, EXECUTION, a_world, ask, inquire, user
from tests.fakes.call_parts import FORMAT, STOP, Client

SHELL = [*FORMAT.tokenizer.encode('<tool_call>{"name":"shell","arguments":{"command":"ls"}}</tool_call>'), STOP]


@pytest.mark.parametrize("restart", [False, True])
def test_a_request_goes_on_from_the_recorded_tokens_of_a_stored_answer(restart: bool) -> None:
    world = a_world()
    ask(world, Message(role="system", content="be short"), user("go"))
    if restart:
        world.crash(0)
    client = ask(world, user("on"), previous=CALL)
    second = world.begins()[f"{EXECUTION}/1"]
    assert (second.parent, second.branch) == (CALL, "")
    assert second.suffix_ids == b"".join(id.to_bytes(4, "little") for id in FORMAT.render_suffix([user("on")], ended=True))
    assert client.replies[0].previous == CALL
    third = ask(world, user("further"), previous=f"{EXECUTION}/1")
    assert world.begins()[third.replies[0].call].parent == f"{EXECUTION}/1"


def test_tool_results_answer_the_minted_ids_of_a_stored_answer() -> None:
    world = a_world()
    world.scripts[CALL] = SHELL
    first = ask(world, user("go"))
    (call,) = first.replies[0].answer.tool_calls
    ask(world, Message(role="tool", content="a.txt", tool_call_id=call.id), previous=CALL)
    second = world.begins()[f"{EXECUTION}/1"]
    assert (second.parent, second.tool_owner) == (CALL, (call.id,))


@pytest.mark.parametrize("restart", [False, True])
def test_tool_results_after_a_stored_answer_have_the_names_of_their_tools(restart: bool) -> None:
    """The request that brings them does not say; templates that show names need them, now and whenever this is rendered again."""
    world = a_world()
    world.scripts[CALL] = SHELL
    (call,) = ask(world, user("go")).replies[0].answer.tool_calls
    ask(world, Message(role="tool", content="a.txt", tool_call_id=call.id), previous=CALL)
    if restart:
        world.crash(0)
    client = Client(EXECUTION, "main", 1, False, messages=[user("on")])
    client.asks = {"store": True, "previous": f"{EXECUTION}/1", "tools_digest": b"others"}
    world.clients.append(client)
    world.arrive(client)
    (render,) = [action for action in world.actions.values() if isinstance(action, Render)]
    assert [(message.role, message.name) for message in render.messages if message.role == "tool"] == [("tool", "shell")]


def test_of_two_equal_answers_the_one_that_was_named_is_gone_on_from() -> None:
    world = a_world()
    same = [*b"ok", STOP]
    world.scripts = {CALL: same, f"{EXECUTION}/1": same}
    for tag in ("", "b"):
        ask(world, user("go"), tag=tag)
    ask(world, user("on"), previous=f"{EXECUTION}/1")
    ask(world, user("on"), previous=CALL, tag="b")
    assert [world.begins()[f"{EXECUTION}/{place}"].parent for place in (2, 3)] == [f"{EXECUTION}/1", CALL]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("instructions", ["be long", ""])
def test_instructions_are_of_one_answer_alone(instructions: str, restart: bool) -> None:
    """OpenAI: those of a previous response are not carried over. System turns among the messages stay where they are."""
    world = a_world()
    first = Client(EXECUTION, "main", 1, False, messages=[Message(role="system", content="be short"), user("go")])
    first.asks = {"store": True, "instructed": True}
    world.clients.append(first)
    world.settle()
    if restart:
        world.crash(0)
    note = Message(role="system", content="mind the gap")
    given = [Message(role="system", content=instructions)] if instructions else []
    client = Client(EXECUTION, "main", 1, False, messages=[*given, note, user("on")])
    client.asks = {"store": True, "previous": CALL, "instructed": bool(instructions)}
    world.clients.append(client)
    world.arrive(client)
    (render,) = [action for action in world.actions.values() if isinstance(action, Render)]
    said = FORMAT.parse(world.output(CALL)).content
    assert [message.content for message in render.messages] == [*([instructions] if instructions else []), "go", said, "mind the gap", "on"]
    world.settle()
    begin = world.begins()[f"{EXECUTION}/1"]
    assert (begin.parent, begin.branch) == (None, "edited_history")


def test_the_same_instructions_again_go_on_from_the_recorded_tokens() -> None:
    world = a_world()
    same = Message(role="system", content="be short")
    for place, previous in enumerate(["", CALL, f"{EXECUTION}/1"]):
        client = Client(EXECUTION, "main", 1, False, messages=[same, user(f"{place}")])
        client.asks = {"store": True, "previous": previous, "instructed": True}
        world.clients.append(client)
        world.settle()
    assert [(begin.parent, begin.branch) for begin in world.begins().values()] == [(None, "root"), (CALL, ""), (f"{EXECUTION}/1", "")]


@pytest.mark.parametrize("why", ["unknown", "foreign", "forgotten", "not stored", "unfinished"])
def test_what_cannot_be_gone_on_from_is_not_found(why: str) -> None:
    world = a_world()
    ask(world, user("go"), store=why != "not stored")
    previous, execution = CALL, EXECUTION
    match why:
        case "unknown":
            previous = f"{EXECUTION}/7"
        case "foreign":
            execution = "train-0-0-1"
            ask(world, user("go"), execution=execution)
        case "forgotten":
            assert isinstance(inquire(world, Forget), Confirm)
        case "unfinished":
            waiting = Client(EXECUTION, "other", 1, False, asks={"store": True})
            world.clients.append(waiting)
            world.arrive(waiting)
            previous = f"{EXECUTION}/1"
    client = Client(execution, "late", 1, False, messages=[user("on")], asks={"previous": previous, "store": True})
    world.clients.append(client)
    world.arrive(client)
    (refusal,) = [action for action in world.actions.values() if isinstance(action, Refuse)]
    assert (refusal.status, refusal.code) == (404, "previous_response_not_found")


@pytest.mark.parametrize("restart", [False, True])
def test_a_stored_answer_is_given_out_again_as_it_was(restart: bool) -> None:
    world = a_world()
    world.scripts[CALL] = SHELL
    first = ask(world, user("go"), tag="kept").replies[0]
    if restart:
        world.crash(0)
    again = inquire(world, Retrieve)
    assert isinstance(again, Reply)
    assert (again.answer, again.finish, again.echo, again.created) == (first.answer, first.finish, (b"kept",), first.created)
    assert (again.prompt_tokens, again.completion_tokens) == (first.prompt_tokens, first.completion_tokens)
    assert isinstance(inquire(world, Retrieve, execution="train-0-0-1"), Refuse)


@pytest.mark.parametrize("restart", [False, True])
def test_a_forgotten_answer_is_gone_but_what_goes_on_from_it_still_does(restart: bool) -> None:
    world = a_world()
    ask(world, user("go"))
    ask(world, user("on"), previous=CALL)
    assert isinstance(inquire(world, Forget), Confirm)
    if restart:
        world.crash(0)
    assert isinstance(inquire(world, Retrieve), Refuse)
    assert isinstance(inquire(world, Forget), Refuse)
    ask(world, user("further"), previous=f"{EXECUTION}/1")
    assert world.begins()[f"{EXECUTION}/2"].parent == f"{EXECUTION}/1"


def test_a_deletion_is_confirmed_once_it_is_durable() -> None:
    world = a_world()
    ask(world, user("go"))
    world.tell(Received(CLIENTS, Forget("q", EXECUTION, CALL)))
    assert not [action for action in world.actions.values() if isinstance(action, Confirm)]
    assert isinstance(world.writes[-1][1], Forgotten)
    world.write(len(world.writes))
    assert [action.conn for action in world.actions.values() if isinstance(action, Confirm)] == ["q"]


def test_an_answer_is_stored_before_its_end_and_not_found_before_it_is_durable() -> None:
    world = a_world()
    client = Client(EXECUTION, "main", 1, False, asks={"store": True})
    world.clients.append(client)
    world.arrive(client)
    world.finish(world.others()[-1])
    (attempt,) = [key for key, action in world.actions.items() if isinstance(action, EngineAttempt)]
    world.complete(attempt)
    world.finish(next(key for key in world.others() if key.startswith("parse")))
    kinds = [type(record) for _, record in world.writes]
    assert kinds[0] is CallBegin and kinds[-2:] == [Stored, CallEnd]
    world.write(len(kinds) - 1)
    world.tell(Received(CLIENTS, Retrieve("q", EXECUTION, CALL)))
    assert [action.code for action in world.actions.values() if isinstance(action, Refuse)] == ["not_found"]


def test_an_answer_that_is_asked_for_again_to_be_stored_is_stored_then() -> None:
    """The same request, but nobody wanted its answer kept the first time; or it was deleted since."""
    world = a_world()
    ask(world, user("go"), store=False)
    ask(world, user("go"), store=True)
    assert [record.call for record in world.journal if isinstance(record, Stored)] == [CALL]
    assert len(world.begins()) == 1
    assert isinstance(inquire(world, Retrieve), Reply)
    assert isinstance(inquire(world, Forget), Confirm)
    ask(world, user("go"), store=True)
    world.crash(0)
    assert isinstance(inquire(world, Retrieve), Reply)


def test_a_client_that_asks_about_an_answer_and_leaves_changes_nothing() -> None:
    world = a_world()
    ask(world, user("go"))
    world.tell(Received(CLIENTS, Retrieve("q", EXECUTION, CALL)))
    world.tell(Received(CLIENTS, Left("q")))
    (key,) = [key for key, action in world.actions.items() if isinstance(action, Reply)]
    world.fail(key, "ClientGone")
    assert not world.shard.conns


def test_messages_with_lone_surrogates_are_stored() -> None:
    world = a_world()
    ask(world, user("half \ud83d"))
    assert isinstance(inquire(world, Retrieve), Reply)
    ask(world, user("on"), previous=CALL)
    assert f"{EXECUTION}/1" in world.begins()
