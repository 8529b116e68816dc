"""What the watch takes for right when something had to fail, and nothing beyond it."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from gyre_hpc.chat.base import Message
from gyre_hpc.machines.call.actions import EngineAttempt, Render
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.journal import CallBegin, CallEnd, CallProgress, Delivered, Sampling, VersionSpan
from gyre_hpc.protocol.tensors import pack_floats, pack_ids
from gyre_hpc.simulation.kernel import Violation
from gyre_hpc.simulation.tokens import draw
from gyre_hpc.simulation.watch_calls import CallTruth

EXECUTION = "train-0-0-0"
FIRST, SECOND = f"{EXECUTION}/0", f"{EXECUTION}/1"
SUFFIX = (Message(role="user", content="go on"),)
WHOLE = (Message(role="user", content="go"), Message(role="assistant", content="well"), *SUFFIX)


class Shard:
    """A life of the gateway, of the run's only attempt."""

    attempt = 1


GATEWAY: Any = Shard()
AFTER_A_CRASH: Any = Shard()


def begin(call: str, parent: str | None = None, branch: str = "") -> CallBegin:
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=9, key=call)
    return CallBegin(
        call=call, execution=EXECUTION, parent=parent, suffix_ids=pack_ids([1]), role="main", thread="", branch=branch, sampling=sampling,
        requested={}, request_hash=call, time=0.0,
    )  # fmt: skip


def truth() -> CallTruth:
    """Two requests, of which the first became a call."""
    made = CallTruth(SimpleNamespace(counts=Counter()))  # type: ignore[arg-type]
    for call in (FIRST, SECOND):
        made.asks(EXECUTION, call)
    made.durable(GATEWAY, begin(FIRST, branch="root"))
    return made


def fail_a_suffix(made: CallTruth, scratch: tuple[Message, ...] = WHOLE) -> None:
    """The gateway renders what follows the first call's answer, fails, and renders anew."""
    made.renders(GATEWAY, f"render/{SECOND}/1", Render(SUFFIX, (), True))
    made.failed(GATEWAY, f"render/{SECOND}/1")
    made.renders(GATEWAY, f"render/{SECOND}/2", Render(scratch, (), None))


def test_a_conversation_whose_suffix_failed_goes_on_as_a_branch_from_scratch() -> None:
    made = truth()
    fail_a_suffix(made)
    made.durable(GATEWAY, begin(SECOND, branch="template_drift"))
    made.continued(SECOND, FIRST)


def test_a_branch_without_a_failed_suffix_is_a_violation() -> None:
    made = truth()
    made.renders(GATEWAY, f"render/{SECOND}/1", Render(SUFFIX, (), True))
    with pytest.raises(Violation, match="no suffix of it failed"):
        made.durable(GATEWAY, begin(SECOND, branch="template_drift"))
    made = truth()
    made.durable(GATEWAY, begin(SECOND, branch="edited_history"))
    with pytest.raises(Violation, match=f"goes on from None, asked for was {FIRST}, right is {FIRST}"):
        made.continued(SECOND, FIRST)


def test_a_suffix_that_failed_in_another_life_of_the_gateway_excuses_nothing() -> None:
    made = truth()
    fail_a_suffix(made)
    with pytest.raises(Violation, match="no suffix of it failed"):
        made.durable(AFTER_A_CRASH, begin(SECOND, branch="template_drift"))


def test_a_suffix_of_another_call_that_failed_excuses_nothing() -> None:
    made = truth()
    made.renders(GATEWAY, f"render/{FIRST}/1", Render(SUFFIX, (), True))
    made.failed(GATEWAY, f"render/{FIRST}/1")
    with pytest.raises(Violation, match="no suffix of it failed"):
        made.durable(GATEWAY, begin(SECOND, branch="template_drift"))


def test_after_a_failed_suffix_the_conversation_must_be_rendered_whole_and_begin_anew() -> None:
    with pytest.raises(Violation, match="another conversation"):
        fail_a_suffix(truth(), scratch=WHOLE[:1])
    made = truth()
    fail_a_suffix(made)
    made.durable(GATEWAY, begin(SECOND, parent=FIRST))
    with pytest.raises(Violation, match="right is None"):
        made.continued(SECOND, FIRST)


def answered(delivered: bool) -> CallTruth:
    made, ids = truth(), [draw(FIRST, position) for position in range(3)]
    spans = (VersionSpan(Version(0, 0), 0, 3),)
    progress = CallProgress(
        call=FIRST,
        start=0,
        output_ids=pack_ids(ids),
        logprobs=pack_floats([-1.0] * 3),
        spans=spans,
        oldest_kv=Version(0, 0),
        cell="c",
        time=0.0,
    )
    made.durable(GATEWAY, progress)
    made.durable(
        GATEWAY,
        CallEnd(call=FIRST, finish="length", num_output=3, malformed=0, tool_calls=(), digest="", cells=(), num_reprefilled=0, time=0.0),
    )
    if delivered:
        made.durable(GATEWAY, Delivered(FIRST, 0.0))
    return made


def test_only_executions_without_a_delivered_token_have_left_nothing() -> None:
    answered(delivered=False).left_nothing([EXECUTION])
    answered(delivered=True).left_nothing(["train-0-0-1"])
    with pytest.raises(Violation, match="delivered with 3 tokens"):
        answered(delivered=True).left_nothing([EXECUTION])


def goes_on(call: str) -> EngineAttempt:
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=9, key=call)
    return EngineAttempt(
        call=call, cell="cell-0", url="", term=1, version=Version(0, 0), prompt=(pack_ids([1]), b""), max_new_tokens=9, sampling=sampling,
        position=0, stop_ids=(), deadline_s=1.0,
    )  # fmt: skip


def test_a_cancelled_call_goes_on_only_when_its_words_are_said_anew() -> None:
    made = truth()
    made.cancelled(FIRST)
    with pytest.raises(Violation, match="goes on after it was cancelled"):
        made.attempts(GATEWAY, goes_on(FIRST))
    made.asks(EXECUTION, SECOND)
    with pytest.raises(Violation, match="goes on after it was cancelled"):
        made.attempts(GATEWAY, goes_on(FIRST))
    made.asks(EXECUTION, FIRST)
    made.attempts(GATEWAY, goes_on(FIRST))
