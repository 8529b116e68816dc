"""What an answer carries and where it ends: stop sequences, log-probs, running hash, limits, held clients."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gyre_hpc.chat.base import Answer
from gyre_hpc.chat.drill import DrillFormat
from gyre_hpc.machines.base import Finished, SetTimer, TimerFired
from gyre_hpc.machines.call.actions import AttemptEnd, EngineAttempt, KeepAlive, Parse, Refuse, Render, Say
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.trajectory.fold import JournalFold
from tests.fakes.call_parts import STOP, Client, row
from tests.fakes.call_world import CallWorld

EXECUTION = "train-0-0-0"
CALL = f"{EXECUTION}/0"
WORDS = [*b"one two three", STOP]


def asked(client: Client, **changed: object) -> CallWorld:
    world = CallWorld(**changed)
    world.scripts[CALL] = WORDS
    world.clients.append(client)
    world.set_table(row(0), row(1))
    return world


def running(world: CallWorld) -> str:
    """Key of the one attempt that runs, after everything else went on."""
    while not (keys := [key for key, action in world.actions.items() if isinstance(action, EngineAttempt)]):
        for client in world.clients:
            if client.wants:
                world.arrive(client)
        for key in world.others():
            world.finish(key)
    return keys[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_a_stop_sequence_ends_the_text_and_the_tokens_stay(stream: bool, restart: bool) -> None:
    client = Client(EXECUTION, "main", 1, stream, asks={"stop": (" tw", "three")})
    world = asked(client)
    key = running(world)
    assert world.actions[key].stop == (" tw", "three")
    world.give(key, 6)
    if restart:
        world.write(len(world.writes))
        world.crash(0)
    world.settle()
    assert (client.answers, client.replies[0].answer.stopped_by) == (["one"], " tw")
    end = next(record for record in world.journal if isinstance(record, CallEnd))
    assert (end.stopped_by, end.finish, world.output(CALL)) == (" tw", "stop", WORDS)
    assert world.begins()[CALL].sampling.stop == (" tw", "three")
    client.turns_left = 1
    world.settle()
    assert world.begins()[f"{EXECUTION}/1"].parent == CALL, "the text as it was cut finds the call"


def test_an_engine_that_missed_a_stop_sequence_makes_no_cut_answer() -> None:
    client = Client(EXECUTION, "main", 1, False, asks={"stop": (" tw",), "max_new_tokens": 9})
    world = asked(client)
    world.settle()
    assert (client.replies[0].finish, client.answers, len(world.output(CALL))) == ("stop", ["one"], 9)


@pytest.mark.parametrize("restart", [False, True])
def test_log_probs_come_with_the_answer_if_they_were_asked_for(restart: bool) -> None:
    client = Client(EXECUTION, "main", 1, False, asks={"logprobs": True})
    world = asked(client)
    world.give(running(world), 5)
    if restart:
        world.write(len(world.writes))
        world.crash(0)
    world.settle()
    reply = client.replies[0]
    assert (reply.ids, reply.logprobs) == (pack_ids(WORDS), pack_floats([-1.0] * len(WORDS)))


def test_log_probs_are_kept_for_nobody_else() -> None:
    client = Client(EXECUTION, "main", 1, False)
    world = asked(client)
    world.settle()
    assert (client.replies[0].ids, client.replies[0].logprobs) == (b"", b"")
    assert world.shard.trees[EXECUTION].nodes[CALL].logprobs is None


def ended(digest: str | None) -> tuple[CallWorld, Client]:
    """A call whose engine tells a running hash at the end; None: the right one."""
    client = Client(EXECUTION, "main", 1, False)
    world = asked(client)
    key = running(world)
    world.give(key, 100)
    right = world.shard.trees[EXECUTION].nodes[CALL].running_digest()
    world._gone(key)
    world.tell(Finished(key, AttemptEnd("stop", right if digest is None else digest)))
    world.settle()
    return world, client


@pytest.mark.parametrize("digest", [None, ""])
def test_an_engine_that_agrees_or_tells_no_hash_changes_nothing(digest: str | None) -> None:
    world, _ = ended(digest)
    assert not world.shard.tokens["digest_mismatch"]
    fold = JournalFold()
    for record in world.journal:
        fold.add(record)
    assert fold.execution(EXECUTION)[0].delivered


def test_an_engine_that_saw_other_ids_gives_its_answer_and_nothing_to_train_on() -> None:
    world, client = ended("0" * 32)
    assert len(client.answers) == 1
    assert world.shard.tokens["digest_mismatch"] == 1
    faults = [note.fields for note in world.notes if note.kind == "token_fault"]
    assert faults == [{"call": CALL, "what": "digest_mismatch", "num": len(WORDS)}]
    fold = JournalFold()
    for record in world.journal:
        fold.add(record)
    (call,) = fold.execution(EXECUTION)
    assert not call.delivered and len(call.output_ids) == len(WORDS)


def test_an_execution_samples_no_more_than_it_may() -> None:
    client = Client(EXECUTION, "main", 3, False)
    world = asked(client, max_tokens_per_execution=20)
    for _ in range(200):
        if client.refused:
            break
        world.settle_step()
    assert client.refused == ["token_limit_exceeded"]
    assert sum(len(world.output(call)) for call in world.begins()) == 20
    (refusal,) = world.refusals
    assert refusal.status == 400 and "gateway.max_tokens_per_execution" in refusal.text
    world.crash(0)
    client.turns_left = 1
    world.arrive(client)
    assert [action.code for action in world.actions.values() if isinstance(action, Refuse)] == ["token_limit_exceeded"]


def test_a_context_that_is_too_long_tells_both_numbers() -> None:
    client = Client(EXECUTION, "main", 1, False)
    world = asked(client, max_context=3)
    world.arrive(client)
    (render,) = [key for key, action in world.actions.items() if isinstance(action, Render)]
    world.finish(render)
    (refusal,) = [action for action in world.actions.values() if isinstance(action, Refuse)]
    assert refusal.facts["limit"] == 3 and refusal.facts["tokens"] > 3 and str(refusal.facts["tokens"]) in refusal.text


@pytest.mark.parametrize(("stream", "first"), [(False, 60.0), (True, 15.0)])
def test_who_does_not_stream_is_held_in_silence_first_and_then_kept_alive(stream: bool, first: float) -> None:
    client = Client(EXECUTION, "main", 1, stream)
    world = asked(client)
    world.set_table()
    world.arrive(client)
    assert world.timers[f"alive/{client.conn}"] == world.now + first
    effects = world.machine.handle(world.now + first, TimerFired(f"alive/{client.conn}"))
    assert any(isinstance(getattr(effect, "action", None), KeepAlive) for effect in effects)
    assert SetTimer(f"alive/{client.conn}", 15.0) in effects


class Thinks(DrillFormat):
    """What stands before each `|` is thought, what stands behind it is said."""

    def parse(self, ids: Sequence[int], *, stop: Sequence[str] = (), partial: bool = False, tools: Sequence[dict[str, Any]] = ()) -> Answer:
        pieces = self.tokenizer.decode([id for id in ids if id != STOP]).split("|")
        return Answer(content="".join(pieces[1::2]), reasoning="".join(pieces[::2]))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_a_call_is_found_whatever_the_harness_did_with_its_thinking(kept: bool, restart: bool) -> None:
    client = Client(EXECUTION, "main", 1, False)
    world = asked(client)
    world.format = Thinks()
    world.scripts = {CALL: [*b"hm|yes", STOP], f"{EXECUTION}/1": [*b"|so", STOP]}
    world.settle()
    assert (client.answers, client.replies[0].answer.reasoning) == (["yes"], "hm")
    if restart:
        world.crash(0)
    if kept:
        client.messages[1] = replace(client.messages[1], reasoning="hm")
    client.turns_left = 1
    world.arrive(client)
    (render,) = [action for action in world.actions.values() if isinstance(action, Render)]
    assert (render.thought, render.ended) == (True, True)
    world.settle()
    begin = world.begins()[f"{EXECUTION}/1"]
    assert (begin.parent, begin.thought, begin.changed) == (CALL, True, False)


def test_thinking_is_said_first_and_never_after_text() -> None:
    client = Client(EXECUTION, "main", 1, True)
    world = asked(client, progress_tokens=1)
    world.format = Thinks()
    world.scripts = {CALL: [*b"hm|yes|oh|no", STOP]}
    key = running(world)
    said: list[tuple[str, str]] = []
    for _ in range(13):
        if key in world.actions:
            world.give(key, 1)
        world.write(len(world.writes))
        for name in world.others():
            action = world.actions[name]
            if isinstance(action, Say):
                said.append((action.reasoning, action.text))
            world.finish(name)
    first_text = next(place for place, (_, text) in enumerate(said) if text)
    assert "".join(reasoning for reasoning, _ in said) == "hm"
    assert not any(reasoning for reasoning, _ in said[first_text:])
    world.settle()
    assert (client.answers, client.replies[0].answer.reasoning) == (["yesno"], "hmoh")


def test_parts_of_a_streamed_answer_are_parsed_as_parts_of_one_call() -> None:
    client = Client(EXECUTION, "main", 1, True)
    world = asked(client)
    world.give(running(world), 5)
    world.write(len(world.writes))
    (parse,) = [action for action in world.actions.values() if isinstance(action, Parse)]
    assert (parse.call, parse.partial, parse.ids) == (CALL, True, pack_ids(WORDS[:5]))


def test_records_of_a_call_say_in_which_words_it_was_asked() -> None:
    client = Client(EXECUTION, "main", 1, False, asks={"protocol": "responses"})
    world = asked(client)
    world.settle()
    assert [record.protocol for record in world.journal if isinstance(record, CallBegin)] == ["responses"]
    assert any(isinstance(record, CallProgress) for record in world.journal)
