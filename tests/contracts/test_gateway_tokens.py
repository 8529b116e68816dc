"""Exact tokens through the real gateway: the prompt of every call is what was recorded plus what is new."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.protocol.journal import CallBegin, CallProgress, Delivered
from gyre_hpc.trajectory.fold import JournalFold
from tests.fakes.gateway_world import EXECUTION, FORMAT, STOP, TOOLS, InTurn, World, called, message, small_config, spelled, until, world

SYSTEM = {"role": "system", "content": "You solve small tasks with a shell."}
USER = {"role": "user", "content": "hello"}


def live(folder: Path, steps: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with world(folder) as here:
            await steps(here)

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("incremental", [False, True])
def test_next_prompt_is_recorded_ids_and_the_new_suffix(tmp_path: Path, stream: bool, incremental: bool) -> None:
    """A1, A3: `ok` was sampled in bytes though the tokenizer has a word for it."""

    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("ok"), spelled("fine")), incremental=incremental)
        here.route(0)
        first = await here.ask([SYSTEM, USER], stream=stream)
        assert message(first)["content"] == "ok"
        more = {"role": "user", "content": "more"}
        second = await here.ask([SYSTEM, USER, message(first), more], stream=stream)
        assert message(second)["content"] == "fine"
        root = FORMAT.render([Message(role="system", content=SYSTEM["content"]), Message(role="user", content="hello")], [])
        suffix = FORMAT.render_suffix([Message(role="user", content="more")], ended=True)
        assert engine.requests[0]["input_ids"] == root
        assert engine.requests[1]["input_ids"] == root + spelled("ok") + suffix
        assert FORMAT.tokenizer.encode("ok") != spelled("ok")[:-1]

    live(tmp_path, steps)


def test_reserialised_tool_calls_are_found_by_their_minted_id(tmp_path: Path) -> None:
    """A5: the harness changes the arguments it sends back; the recorded tokens stay the context."""

    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(called("ls  ", "Let me see."), spelled("done"), spelled("bye")))
        here.route(0)
        first = message(await here.ask([SYSTEM, USER], tools=TOOLS))
        call = first["tool_calls"][0]
        assert call["id"] == f"call_{EXECUTION}_0_0"
        changed = first | {"tool_calls": [call | {"function": {"name": "shell", "arguments": '{ "command" : "ls" }'}}]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"}
        second = message(await here.ask([SYSTEM, USER, changed, result], tools=TOOLS))
        given = engine.requests[0]["input_ids"] + called("ls  ", "Let me see.")
        assert engine.requests[1]["input_ids"][: len(given)] == given
        # Later the harness changes the same turn once more: still the same context.
        other = first | {"content": None, "tool_calls": [call | {"function": {"name": "shell", "arguments": "{}"}}]}
        await here.ask([SYSTEM, USER, other, result, second, USER], tools=TOOLS)
        given = engine.requests[1]["input_ids"] + spelled("done")
        assert engine.requests[2]["input_ids"][: len(given)] == given
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert [begin.branch for begin in begins] == ["root", "", ""]
        assert [begin.parent for begin in begins] == [None, f"{EXECUTION}/0", f"{EXECUTION}/1"]
        assert begins[1].tool_owner == (call["id"],)
        assert [begin.changed for begin in begins] == [False, True, False]

    live(tmp_path, steps)


def test_an_edited_turn_makes_a_branch_from_what_still_holds(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("one"), spelled("two"), spelled("three")))
        here.route(0)
        first = message(await here.ask([SYSTEM, USER]))
        await here.ask([SYSTEM, USER, first | {"content": "uno"}, USER])
        begin = [record for record in here.records() if isinstance(record, CallBegin)][1]
        assert (begin.parent, begin.branch) == (None, "edited_history")
        turns = [Message(role="system", content=SYSTEM["content"]), Message(role="user", content="hello")]
        turns += [Message(role="assistant", content="uno"), Message(role="user", content="hello")]
        assert engine.requests[1]["input_ids"] == FORMAT.render(turns, [])

    live(tmp_path, steps)


def test_two_identical_parallel_requests_are_two_calls(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("ok")))
        engine.faults = ["late:1", "late:1"]
        here.route(0)
        asked = [asyncio.create_task(here.ask([SYSTEM, USER])) for _ in range(2)]
        await until(lambda: len(engine.requests) == 2, "two requests at the engine")
        engine.gate.set()
        answers = await asyncio.gather(*asked)
        assert [message(answer)["content"] for answer in answers] == ["ok", "ok"]
        begins = [record for record in here.records() if isinstance(record, CallBegin)]
        assert len({begin.call for begin in begins}) == 2
        assert len({begin.sampling.key for begin in begins}) == 2
        assert begins[1].branch == "retry"

    live(tmp_path, steps)


@pytest.mark.parametrize("stream", [False, True])
def test_a_retry_joins_the_call_its_first_connection_left(tmp_path: Path, stream: bool) -> None:
    """A11: one call record, its tokens sampled once."""

    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(spelled("a long answer")))
        engine.faults = ["late:3"]
        here.route(0)
        first = asyncio.create_task(here.ask([SYSTEM, USER], stream=stream))
        await until(lambda: here.tokens().get("sampled") == 3, "three tokens")
        first.cancel()
        again = asyncio.create_task(here.ask([SYSTEM, USER], stream=stream))
        await until(lambda: ("call_joined", 0) in [(kind, 0) for kind, _ in here.notes], "the retry joins")
        engine.gate.set()
        assert message(await again)["content"] == "a long answer"
        assert len(engine.requests) == 1
        assert len(here.ends()) == 1

    live(tmp_path, steps)


def test_an_answer_that_was_lost_is_delivered_again_without_sampling(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        engine = await here.engine(InTurn(called("ls")))
        here.route(0)
        first = await here.ask([SYSTEM, USER], tools=TOOLS)
        again = await here.ask([SYSTEM, USER], tools=TOOLS)
        assert message(first) == message(again)
        assert len(engine.requests) == 1
        # Once something builds on it, the same request is a new call.
        result = {"role": "tool", "tool_call_id": message(first)["tool_calls"][0]["id"], "content": ""}
        await here.ask([SYSTEM, USER, message(first), result], tools=TOOLS)
        await here.ask([SYSTEM, USER], tools=TOOLS)
        assert len(engine.requests) == 3

    live(tmp_path, steps)


@pytest.mark.parametrize("fault", ["abort:4", "cut:4", "busy", "abort:0", "cut:0"])
def test_a_call_goes_on_at_another_cell_with_the_same_tokens(tmp_path: Path, fault: str) -> None:
    async def steps(here: World) -> None:
        answer = spelled("the answer is here")
        one, two = await here.engine(InTurn(answer)), await here.engine(InTurn(answer))
        one.faults = [fault]
        here.route(0, 1)
        got = await here.ask([SYSTEM, USER])
        assert message(got)["content"] == "the answer is here"
        asked = two.requests[0]
        position = asked["sampling_params"]["custom_params"]["position"]
        assert asked["input_ids"] == one.requests[0]["input_ids"] + answer[:position]
        assert asked["sampling_params"]["max_new_tokens"] == one.requests[0]["sampling_params"]["max_new_tokens"] - position
        assert asked["sampling_params"]["custom_params"]["key"] == one.requests[0]["sampling_params"]["custom_params"]["key"]
        pieces = [record for record in here.records() if isinstance(record, CallProgress)]
        assert b"".join(piece.output_ids for piece in pieces) == b"".join(token.to_bytes(4, "little") for token in answer)
        end = here.ends()[0]
        moved = position > 0
        assert end.cells == (("cell-0", "cell-1") if moved else ("cell-1",))
        assert (end.num_reprefilled > 0) == moved
        assert here.tokens().get("resampled", 0) == here.tokens().get("lost", 0) == 0

    live(tmp_path, steps)


def test_streamed_and_whole_answers_are_the_same(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        here.config.gateway.progress_tokens = 4
        texts = [
            spelled("plain text, a bit longer than one interval"),
            called("ls", "Thinking: "),
            spelled("é€ cut"),
            [*b"a<tool_call>{bad", STOP],
        ]
        await here.engine(InTurn(*texts, *texts))
        here.route(0)
        for place in range(len(texts)):
            user = {"role": "user", "content": f"{place}"}
            whole = await here.ask([user], tools=TOOLS)
            streamed = await here.ask([user], tools=TOOLS, stream=True, stream_options={"include_usage": True})
            assert streamed["choices"][0]["message"] == whole["choices"][0]["message"]
            assert streamed["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
            assert streamed["usage"] == whole["usage"]

    live(tmp_path, steps)


def test_text_is_streamed_once_it_is_durable(tmp_path: Path) -> None:
    async def steps() -> None:
        async with world(tmp_path, small_config(progress_tokens=4)) as here:
            engine = await here.engine(InTurn(spelled("abcdefghijkl")))
            engine.faults = ["late:9"]
            here.route(0)
            task = asyncio.create_task(here.ask([USER], stream=True))
            await until(lambda: sum(len(r.output_ids) for r in here.records() if isinstance(r, CallProgress)) == 4 * 9, "nine tokens")
            conns = here.gateway.host._machine._shard.live  # type: ignore[union-attr]
            await until(lambda: [live.said for live in conns.values()] == ["abcdefghi"], "nine letters said")
            engine.gate.set()
            assert message(await task)["content"] == "abcdefghijkl"

    asyncio.run(steps())


def test_the_journal_folds_to_delivered_calls(tmp_path: Path) -> None:
    async def steps(here: World) -> None:
        one, _ = await here.engine(InTurn(spelled("first"), spelled("second"))), await here.engine(InTurn(spelled("first")))
        one.faults = ["abort:2"]
        here.route(0, 1)
        await here.ask([SYSTEM, USER])
        await until(lambda: any(isinstance(record, Delivered) for record in here.records()), "delivered record")
        fold = JournalFold()
        for record in here.records():
            fold.add(record)
        (call,) = fold.execution(EXECUTION)
        assert (call.output_ids.tolist(), call.delivered, call.finish) == (spelled("first"), True, "stop")
        assert [round(float(value), 4) for value in call.logprobs] == [round(-0.5 - token / 1000, 4) for token in spelled("first")]

    live(tmp_path, steps)
