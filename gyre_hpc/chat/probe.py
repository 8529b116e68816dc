"""What a template does with a conversation that grows: tried out once, when it is loaded.

A recorded answer can only be extended where prompt + answer + suffix is what the template makes of the whole conversation.
That is tried for conversations of different length, with and without tools, with tool results, system turns in mid-conversation
and thinking. Only what holds for all of them is believed.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gyre_hpc.chat.base import Message
from gyre_hpc.chat.probe_talks import LAST_WORDS, MID_SYSTEM, TOOL_NAME, TOOLS, Talk, with_tools, without_tools
from gyre_hpc.chat.suffix import SuffixText
from gyre_hpc.chat.template import ChatTemplate
from gyre_hpc.chat.turns import Adaptation, adapted, as_dicts

_THINKING = re.compile(r"<think>(?:.*?</think>\s*|\s*\Z)", re.DOTALL)


class Growth(enum.Enum):
    """How the prompt of a longer conversation relates to that of a shorter one."""

    appends = "appends"
    forgets_thinking = "appends, but past thinking is dropped"
    rewrites = "rewrites"


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What was found out about a template."""

    growth: Growth
    reason: str = ""
    """Why it rewrites."""
    adaptation: Adaptation
    turn_ends: tuple[str, ...]
    """Tokens, as text, that end an assistant's turn."""
    thinking_begun: bool
    """Its generation prompt opens thinking; an answer then begins inside."""
    thinking_closed: bool
    """Its generation prompt holds thinking that is over."""
    shows_tools: bool
    needs_names: bool
    """Tool results show the tool's name."""


def probe(template: ChatTemplate, special: Sequence[str]) -> Findings:
    """`special`: the tokenizer's special tokens. Raises ValueError for a template that renders no conversation at all."""
    prompt_tail = _tail(template)
    ends = _turn_ends(template, special)
    best = _best(template, ends)
    growth, reason = best.growth, best.reason
    if template.tells_time:
        growth, reason = Growth.rewrites, "it tells the time (fix it in model.template_args where the template takes a date)"
    return Findings(
        growth=growth,
        reason=reason,
        adaptation=best.adaptation,
        turn_ends=ends,
        thinking_begun=prompt_tail.rfind("<think>") > prompt_tail.rfind("</think>"),
        thinking_closed="</think>" in prompt_tail,
        shows_tools=TOOL_NAME in _asked(template, TOOLS),
        needs_names=growth is not Growth.rewrites and _needs_names(SuffixText(template, best.adaptation, ends)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Try:
    """What came of one adaptation."""

    adaptation: Adaptation
    growth: Growth
    reason: str
    num_refused: int
    """Conversations with system turns in between that the template refuses all the same."""

    @property
    def is_good(self) -> bool:
        return self.growth is not Growth.rewrites and not self.num_refused


class _Refused(ValueError):
    """The template does not take this conversation, whatever it grew from."""


def _best(template: ChatTemplate, ends: Sequence[str]) -> _Try:
    """The least change with which prompts grow and fewest conversations are refused."""
    tries = []
    for how in Adaptation:
        tries.append(_try(template, SuffixText(template, how, ends), how))
        if tries[-1].is_good:
            break
    return min(tries, key=lambda one: (one.growth is Growth.rewrites, one.num_refused))


def _try(template: ChatTemplate, suffix: SuffixText, how: Adaptation) -> _Try:
    """Conversations that are refused say nothing about growth: they will not happen."""
    thinks, found, num_refused = "</think>" in template.text, [], 0
    for talk in [*without_tools(thinks), *with_tools(thinks)]:
        try:
            found.append(_grows(template, suffix, how, talk))
        except _Refused:
            num_refused += talk.has_system_between
    order = list(Growth)
    growth, reason = max(found, key=lambda one: order.index(one[0]), default=(Growth.rewrites, "it refuses every conversation"))
    return _Try(adaptation=how, growth=growth, reason=reason, num_refused=num_refused)


def _grows(template: ChatTemplate, suffix: SuffixText, how: Adaptation, talk: Talk) -> tuple[Growth, str]:
    """Growth from talk.before over talk.answer to talk.later. Raises _Refused."""
    before = adapted(talk.before, how, from_start=True)
    try:
        prompt = template.render(as_dicts(before), talk.tools)
        spoken = template.render(as_dicts([*before, talk.answer]), talk.tools, prompt=False)
        whole = template.render(as_dicts(adapted([*talk.before, talk.answer, *talk.later], how, from_start=True)), talk.tools)
    except ValueError as error:
        raise _Refused(str(error)) from error
    if talk.has_system_between and MID_SYSTEM not in whole:
        raise _Refused("it leaves out the system turn")
    try:
        turn_end, after, _ = suffix.after(talk.later)
    except ValueError as error:
        return Growth.rewrites, str(error)
    if whole == _joined(prompt, spoken, turn_end, after):
        return Growth.appends, ""
    if _unthought(whole) == _joined(*map(_unthought, (prompt, spoken, turn_end, after))):
        return Growth.forgets_thinking, ""
    return Growth.rewrites, f"a conversation of {talk.name} does not continue the shorter one"


def _joined(prompt: str, spoken: str, turn_end: str, after: str) -> str:
    """Prompt, answer and suffix as recorded ids would stand; empty when the answer is not what follows the prompt."""
    end = spoken.rfind(turn_end)
    if end < len(prompt) or not spoken.startswith(prompt):
        return ""
    return spoken[:end] + turn_end + after


def _unthought(text: str) -> str:
    return _THINKING.sub("", text)


def _tail(template: ChatTemplate) -> str:
    """What the generation prompt adds."""
    return _asked(template, ()).removeprefix(_asked(template, (), prompt=False))


def _asked(template: ChatTemplate, tools: Sequence[Mapping[str, Any]], *, prompt: bool = True) -> str:
    return template.render(as_dicts([Message(role="user", content="-")]), tools, prompt=prompt)


def _turn_ends(template: ChatTemplate, special: Sequence[str]) -> tuple[str, ...]:
    found = []
    for talk in (next(iter(without_tools(False))), next(iter(with_tools(False)))):
        try:
            text = template.render(as_dicts([*talk.before, talk.answer]), talk.tools, prompt=False)
        except ValueError:
            continue
        behind = text.rpartition(LAST_WORDS)[2] if LAST_WORDS in text else ""
        places = [(place, mark) for mark in special if (place := behind.find(mark)) >= 0]
        found += [min(places, key=lambda one: (one[0], -len(one[1])))[1]] if places else []
    return tuple(dict.fromkeys(found))


def _needs_names(suffix: SuffixText) -> bool:
    results = [Message(role="tool", content="one", tool_call_id="call-one", name=TOOL_NAME)]
    try:
        return suffix.after(results) != suffix.after([Message(role="tool", content="one", tool_call_id="call-one")])
    except ValueError:  # no tool results at all
        return False
