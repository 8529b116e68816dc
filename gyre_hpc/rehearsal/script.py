"""Prompt text -> what the scripted model says next. Stateless: a continued, retried or moved call gets the same answer.

Marks carry everything, and they travel in text, because that is what every harness brings back:
    [[begin PART SCENARIO]]   in an instruction; the first one in a prompt says whose prompt it is
    [[PART STEP]]             in every answer; the highest one of the part says how far it is
A summary repeats both, so a compacted history goes on where the old one was.
"""

import re
from dataclasses import dataclass, replace

from gyre_hpc.rehearsal.base import Do, Op, Say, Scenario
from gyre_hpc.rehearsal.dialects import Dialect
from gyre_hpc.rehearsal.scenarios import scenario_named

_BEGIN = re.compile(r"\[\[begin ([a-z_]+) ([a-z_]+)\]\]")
_DONE = re.compile(r"\[\[([a-z_]+) (\d+)\]\]")
MARK = re.compile(rf"{_BEGIN.pattern}|{_DONE.pattern}")
"""Either of them."""
HELPER, SUMMARY, STEP = "helper", "summary", "step"
_WAIT = Say(text="I wait for it.", does=(Do(op=Op.await_agents),))
_RESUMED = "And now the rest."
_DELEGATING = frozenset({Op.delegate, Op.background})


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What is said in answer to one prompt."""

    part: str
    """Whose turn it is; `helper` for calls about something else (titles, ...)."""
    step: int
    """-1: a summary of the part, or a helper's answer."""
    kind: str
    """step, summary or helper."""
    text: str
    """What is said, with its mark."""
    say: Say
    calls: tuple[tuple[str, str], ...] = ()
    """(tool, arguments as JSON)."""


def instruction(scenario: Scenario, dialect: Dialect) -> str:
    """What the main agent is told."""
    lines = [f"Rehearse, step by step. [[begin main {scenario.name}]]"]
    if dialect.delegates_by_instruction:
        lines += [f"Also: {do.text}" for say in scenario.parts["main"] for do in say.does if do.op in _DELEGATING]
    return "\n".join(lines)


def says_of(scenario: Scenario, part: str, dialect: Dialect) -> tuple[Say, ...]:
    """The steps of a part, as far as this harness has them made by the model."""
    says = scenario.parts[part]
    if dialect.delegates_by_instruction:
        return tuple(say for say in says if not any(do.op in _DELEGATING for do in say.does))
    if dialect.waits_by_tool:
        return tuple(one for say in says for one in (say, *([_WAIT] if any(do.op is Op.delegate for do in say.does) else [])))
    return says


def mark(part: str, step: int) -> str:
    return f"[[{part} {step}]]"


def marks_in(text: str) -> list[tuple[str, int]]:
    """All steps named in `text`, in order."""
    return [(part, int(step)) for part, step in _DONE.findall(text)]


def next_turn(prompt: str, dialect: Dialect) -> Turn:
    """Raises UserError for a scenario that is not known."""
    begin = _BEGIN.search(prompt)
    if begin is None or dialect.is_helper(prompt):
        return Turn(part=HELPER, step=-1, kind=HELPER, text=dialect.helper_answer, say=Say())
    part, scenario = begin[1], begin[2]
    done = max((step for named, step in marks_in(prompt) if named == part), default=-1)
    if dialect.is_compaction(prompt):
        summary = f"So far: {begin[0]} {mark(part, done) if done >= 0 else ''} Everything is in order, go on with the next step."
        return Turn(part=part, step=-1, kind=SUMMARY, text=dialect.summary(prompt, summary), say=Say())
    says = says_of(scenario_named(scenario), part, dialect)
    resumed = f"{mark(part, done)} {_RESUMED}"
    resumes = dialect.is_resumption(prompt) and resumed not in prompt
    step = min(done if resumes else done + 1, len(says) - 1)
    say = replace(says[step], text=_RESUMED, moment=None) if resumes else says[step]
    # In front: whatever becomes of the rest of an answer, its mark comes back.
    text = f"{mark(part, step)} {say.text}"
    if say.is_wordless:
        text, say = "", replace(say, does=tuple(replace(do, text=f"{do.text} # {mark(part, step)}") for do in say.does))
    calls = tuple(call for do in say.does for call in dialect.calls(do, prompt))
    if dialect.farewell and step == len(says) - 1:
        calls += tuple(dialect.calls(Do(op=Op.shell, text=dialect.farewell), prompt))
    return Turn(part=part, step=step, kind=STEP, text=text, say=say, calls=calls)
