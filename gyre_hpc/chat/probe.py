"""What a template does with a conversation that grows: tried out once, when it is loaded.

A recorded answer can only be extended where prompt + answer + suffix is what the template makes of the whole conversation.
That is tried for conversations of different length, with and without tools, with tool results, system turns in mid-conversation
and thinking. Only what holds for all of them is believed.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    takes_tools: bool
    needs_names: bool
    """Tool results show the tool's name."""


def probe(template: ChatTemplate, special: Sequence[str]) -> Findings:
    """`special`: the tokenizer's special tokens. Raises ValueError for a template that renders no conversation at all."""
    prompt_tail = _tail(template)
    ends = _turn_ends(template, special)
    best = _first_that_works(template, ends)
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
        takes_tools=best.takes_tools,
        needs_names=best.takes_tools and growth is not Growth.rewrites and _needs_names(SuffixText(template, best.adaptation, ends)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Try:
    adaptation: Adaptation
    growth: Growth = Growth.rewrites
    reason: str = ""
    refused: bool = False
    takes_tools: bool = False


def _first_that_works(template: ChatTemplate, ends: Sequence[str]) -> _Try:
    """The least change with which the prompt grows; if there is none, the least one that is not refused."""
    tries = []
    for how in Adaptation:
        tries.append(_try(template, how, ends, "</think>" in template.text))
        if tries[-1].growth is not Growth.rewrites:
            return tries[-1]
    return next((one for one in tries if not one.refused), tries[0])


def _try(template: ChatTemplate, how: Adaptation, ends: Sequence[str], thinks: bool) -> _Try:
    suffix = SuffixText(template, how, ends)
    try:
        growth, reason = _worst(_grows(template, suffix, how, talk) for talk in without_tools(thinks))
    except ValueError as error:
        return _Try(adaptation=how, reason=str(error), refused=True)
    try:
        _render(template, how, next(iter(with_tools(thinks))))
    except ValueError:
        return _Try(adaptation=how, growth=growth, reason=reason)
    try:
        tool_growth, tool_reason = _worst(_grows(template, suffix, how, talk) for talk in with_tools(thinks))
    except ValueError as error:
        return _Try(adaptation=how, reason=str(error), takes_tools=True)
    shown = TOOL_NAME in template.render(as_dicts([Message(role="user", content="-")]), TOOLS)
    growth, reason = _worst([(growth, reason), (tool_growth, tool_reason)])
    return _Try(adaptation=how, growth=growth, reason=reason, takes_tools=shown)


def _worst(found: Iterable[tuple[Growth, str]]) -> tuple[Growth, str]:
    order = list(Growth)
    return max(found, key=lambda one: order.index(one[0]))


def _grows(template: ChatTemplate, suffix: SuffixText, how: Adaptation, talk: Talk) -> tuple[Growth, str]:
    """Growth from talk.before over talk.answer to talk.later."""
    before = adapted(talk.before, how, from_start=True)
    prompt = template.render(as_dicts(before), talk.tools)
    spoken = template.render(as_dicts([*before, talk.answer]), talk.tools, prompt=False)
    whole = _render(template, how, talk)
    turn_end, after, _ = suffix.after(talk.later)
    if any(MID_SYSTEM in turn.content for turn in talk.later) and MID_SYSTEM not in whole:
        raise ValueError("the chat template leaves out system turns in mid-conversation")
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


def _render(template: ChatTemplate, how: Adaptation, talk: Talk) -> str:
    turns = adapted([*talk.before, talk.answer, *talk.later], how, from_start=True)
    return template.render(as_dicts(turns), talk.tools)


def _unthought(text: str) -> str:
    return _THINKING.sub("", text)


def _tail(template: ChatTemplate) -> str:
    """What the generation prompt adds."""
    turns = as_dicts([Message(role="user", content="-")])
    return template.render(turns, ()).removeprefix(template.render(turns, (), prompt=False))


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
    except ValueError:
        return True
