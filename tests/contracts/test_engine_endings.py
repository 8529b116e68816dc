"""How answers end, for every kind of engine: stop strings, also across a switch of cells, and the hash of what was computed."""

import asyncio
from typing import Any

import pytest

from gyre_hpc.machines.call.recorded import RecordedTree
from gyre_hpc.protocol.tensors import pack_ids
from tests.fakes.engine_rig import LONG, V1, Rig, decode, run, until

COMPUTING = ["embedded", "prescribed", "timed"]
KINDS = [*COMPUTING, "scripted"]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def digest(ids: list[int]) -> str:
    """As the gateway computes it of what it recorded."""
    return str(RecordedTree().hash_prompt(None, pack_ids(ids)).hexdigest())


def completed_at(ids: list[int], stop: str) -> int:
    """Index of the token that completes the stop string."""
    return next(n for n in range(len(ids)) if stop in decode(ids[: n + 1]))


def finish(answer: dict[str, Any]) -> Any:
    return answer["meta_info"]["finish_reason"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_tokens", [1, 3, 30])
def test_the_token_that_completes_a_stop_string_ends_the_answer_and_stays(kind: str, num_tokens: int) -> None:
    async def test(rig: Rig) -> None:
        free = (await rig.generate(PROMPT, 60))["output_ids"]
        first = next(n for n in range(20, 60) if decode([free[n]]))
        stop = decode(free[first : first + num_tokens])
        expected = free[: completed_at(free, stop) + 1]
        for asked in (stop, [stop], ["never, never", stop]):
            answer = await rig.generate(PROMPT, 60, stop=asked, no_stop_trim=isinstance(asked, str))
            assert answer["output_ids"] == expected
            assert finish(answer) == {"type": "stop", "matched": stop}
            assert answer["meta_info"]["completion_tokens"] == len(answer["meta_info"]["output_token_logprobs"]) == len(expected)
        deltas = await rig.stream(PROMPT, 60, incremental=True, stop=[stop])
        assert [token for delta in deltas for token in delta["output_ids"]] == expected
        assert finish(deltas[-1]) == {"type": "stop", "matched": stop}
        assert (await rig.generate(PROMPT, 60, stop=["never, never"]))["output_ids"] == free

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_ignore_eos_ignores_stop_tokens_alone(kind: str) -> None:
    async def test(rig: Rig) -> None:
        free = (await rig.generate(PROMPT, 60))["output_ids"]
        stop = decode(free[20:24])
        answer = await rig.generate(PROMPT, 60, stop=stop, stop_token_ids=[free[5]], ignore_eos=True)
        assert answer["output_ids"] == free[: completed_at(free, stop) + 1]

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_string_across_an_abort_is_found_by_the_continuation(kind: str) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, LONG, rid="long"))
        assert (await rig.post("/abort_request", {"rid": "long"}))[0] == 200
        _, cut = await task
        kept = cut["output_ids"]
        assert cut["meta_info"]["ids_digest"] == digest(PROMPT + kept)

        async def ask(ids: list[int], position: int, **more: Any) -> Any:
            asked = asyncio.create_task(rig.generate(ids, 40 - position + len(kept), position=position, **more))
            await until(lambda: bool(rig.engine.num_live()) or asked.done())
            await rig.go_on()
            return await asked

        free = (await ask(PROMPT, 0))["output_ids"]
        assert free[: len(kept)] == kept
        # Two tokens with text on either side of the cut.
        texts = [n for n, token in enumerate(free) if decode([token])]
        before, after = [n for n in texts if n < len(kept)], [n for n in texts if n >= len(kept)]
        stop = decode(free[before[-2] : after[1] + 1])
        end = completed_at(free, stop) + 1
        assert end > len(kept), "it spans the cut"

        rest = await ask(PROMPT + kept, len(kept), stop=[stop])
        assert kept + rest["output_ids"] == free[:end]
        assert finish(rest) == {"type": "stop", "matched": stop}
        whole = await ask(PROMPT, 0, stop=[stop])
        assert whole["output_ids"] == free[:end]
        assert rest["meta_info"]["ids_digest"] == whole["meta_info"]["ids_digest"] == digest(PROMPT + free[:end])

        # The engine was lost after the last token, before it could say why it ended.
        nothing = await ask(PROMPT + free[:end], end, stop=[stop])
        assert (nothing["output_ids"], finish(nothing)) == ([], {"type": "stop", "matched": stop})
        assert nothing["meta_info"]["ids_digest"] == whole["meta_info"]["ids_digest"]

    run(kind, test, held=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_prompt_itself_is_never_searched(kind: str) -> None:
    async def test(rig: Rig) -> None:
        free = (await rig.generate(PROMPT, 20))["output_ids"]
        stop = decode([*PROMPT, *free[:1]]) if decode(free[:1]) else decode(PROMPT)
        assert (await rig.generate(PROMPT, 20, stop=stop))["output_ids"] == free

    run(kind, test)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_tokenizer_stop_strings_are_refused_and_all_else_is_served(kind: str) -> None:
    async def test(rig: Rig) -> None:
        status, answer = await rig.post("/generate", rig.body(PROMPT, 4, stop=["end"]))
        assert status == 400
        assert "sampling_params.stop=['end']: this engine has no tokenizer" in answer["error"]["message"]
        assert len((await rig.generate(PROMPT, 4, stop=[]))["output_ids"]) == 4

    run(kind, test, has_decode=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_event_alone_tells_the_hash_over_prompt_and_output(kind: str) -> None:
    async def test(rig: Rig) -> None:
        for incremental in (False, True):
            events = await rig.stream(PROMPT, 40, incremental=incremental)
            whole = await rig.generate(PROMPT, 40)
            assert events[-1]["meta_info"]["ids_digest"] == whole["meta_info"]["ids_digest"] == digest(PROMPT + whole["output_ids"])
            assert not any("ids_digest" in event["meta_info"] for event in events[:-1])
        other = await rig.generate([*PROMPT[:-1], 6], 40)
        assert other["meta_info"]["ids_digest"] == digest([*PROMPT[:-1], 6, *other["output_ids"]])

    run(kind, test)


@pytest.mark.parametrize("kind", COMPUTING)
@pytest.mark.parametrize("keep_kv", [False, True])
def test_new_weights_and_retraction_change_no_hash_and_lose_no_stop_string(kind: str, keep_kv: bool) -> None:
    async def test(rig: Rig) -> None:
        (task,) = await rig.begin(rig.body(PROMPT, 300, stop=["never, never"]))
        await rig.engine.update_weights(V1)
        await rig.post("/pause_generation", {"mode": "retract"})
        await rig.post("/continue_generation")
        await rig.go_on()
        _, answer = await task
        assert len(answer["meta_info"]["weight_versions"]) == 2
        assert answer["meta_info"]["num_retractions"] >= 1
        assert answer["meta_info"]["ids_digest"] == digest(PROMPT + answer["output_ids"])

    run(kind, test, keep_kv=keep_kv)
