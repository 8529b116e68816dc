"""notes/faults.md A1-A3, seen from the chat format: sampled ids are kept, never made again from text."""

from gyre_hpc.chat.base import Answer, Message
from gyre_hpc.chat.drill import DrillFormat


class ForgetfulFormat(DrillFormat):
    """A template that drops what past assistant turns said, as reasoning templates do."""

    def _turn(self, message, *, first, tools):  # type: ignore[no-untyped-def]
        kept = Message(role="assistant", tool_calls=message.tool_calls) if message.role == "assistant" else message
        return super()._turn(kept, first=first, tools=tools)


FORMAT = DrillFormat()
PROMPT = [Message(role="user", content="Join a into d.")]
LATER = [Message(role="user", content="go on")]


def answer_message(answer: Answer) -> Message:
    return Message(role="assistant", content=answer.content, tool_calls=answer.tool_calls)


def test_a1_ids_that_reencode_differently_are_kept_as_sampled() -> None:
    sampled = [*b"echo ", FORMAT.stop_ids[0]]
    assert FORMAT.tokenizer.encode(FORMAT.tokenizer.decode(sampled)) != sampled
    prompt = FORMAT.render(PROMPT, [])
    following = prompt + sampled + FORMAT.render_suffix(LATER, ended=True)
    rendered = FORMAT.render([*PROMPT, answer_message(FORMAT.parse(sampled)), *LATER], [])
    assert following[len(prompt) : len(prompt) + len(sampled)] == sampled
    assert following != rendered
    assert FORMAT.tokenizer.decode(following) == FORMAT.tokenizer.decode(rendered)


def test_a2_a_template_that_forgets_still_extends_the_recorded_ids() -> None:
    forgetful = ForgetfulFormat()
    sampled = [*forgetful.tokenizer.encode("let me think"), forgetful.stop_ids[0]]
    prompt = forgetful.render(PROMPT, [])
    rendered = forgetful.render([*PROMPT, answer_message(forgetful.parse(sampled)), *LATER], [])
    following = prompt + sampled + forgetful.render_suffix(LATER, ended=True)
    assert rendered[: len(prompt) + len(sampled)] != prompt + sampled
    assert following[: len(prompt) + len(sampled)] == prompt + sampled


def test_a3_an_end_mark_spelled_in_bytes_does_not_end_the_answer() -> None:
    spelled = list(b"ok<|im_end|>")
    by_id = [*FORMAT.tokenizer.encode("ok"), FORMAT.stop_ids[0]]
    assert FORMAT.tokenizer.decode(spelled) == FORMAT.tokenizer.decode(by_id)
    assert FORMAT.parse(by_id).content == "ok"
    assert FORMAT.parse(spelled).content == "ok<|im_end|>"
