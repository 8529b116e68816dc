"""How each harness wants its tools called, how it asks for a summary, what it can do. One entry per harness."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gyre_hpc.errors import UserError
from gyre_hpc.rehearsal.base import Ability, Do, Op

Tool = tuple[str, Callable[[str], dict[str, Any]]]
"""Name, and its arguments for a command, an instruction, or (await_agents) an agent's id."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One harness as the scripted model sees it."""

    tools: Mapping[Op, Tool]
    abilities: frozenset[Ability]
    summary_asked: tuple[str, ...] = ()
    """Words that are in a prompt only when a summary is asked for."""
    summary_form: str = "{}"
    helper_asked: tuple[str, ...] = ()
    role_words: tuple[str, ...] = ()
    """Words by which its adapter tells calls apart and that a recording must keep, beside those above."""
    helper_answer: str = '{"title": "Rehearsal"}'
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the group `harness` for a rehearsal."""
    resume_asked: tuple[str, ...] = ()
    """Words with which it asks for the rest of an answer whose connection broke: it keeps what it got of it as a turn."""
    is_nameless: bool = False
    """Does not tell its conversations apart: a second sub-agent with the same instruction looks like the first one's retry."""
    farewell: str = ""
    """Command that ends it; else an answer without a tool call does."""
    delegates_by_instruction: bool = False
    """Sub-agents come from lines of the instruction, before the main agent begins."""
    window: int = 0
    """Instead of the scenario's."""
    window_used: float = 1.0
    """Share of its window that it fills before it compacts."""
    window_kept: int = 0
    """Tokens of its window that it keeps free."""

    @property
    def kept_words(self) -> tuple[str, ...]:
        return (*self.summary_asked, *self.helper_asked, *self.resume_asked, *self.role_words)

    @property
    def waits_by_tool(self) -> bool:
        """Its sub-agents run beside the main agent until that waits for them."""
        return Op.await_agents in self.tools

    def calls(self, do: Do, prompt: str) -> list[tuple[str, str]]:
        """(tool, arguments as JSON): one call, or one for each agent that is waited for."""
        if do.op not in self.tools:
            return []
        name, arguments = self.tools[do.op]
        texts = list(dict.fromkeys(_AGENT_ID.findall(prompt))) if do.op is Op.await_agents else [do.text]
        return [(name, json.dumps(arguments(text), ensure_ascii=False)) for text in texts]

    def is_compaction(self, prompt: str) -> bool:
        return any(words in prompt for words in self.summary_asked)

    def is_resumption(self, prompt: str) -> bool:
        return any(words in prompt for words in self.resume_asked)

    def is_helper(self, prompt: str) -> bool:
        return any(words in prompt for words in self.helper_asked)

    def summary(self, prompt: str, text: str) -> str:
        return self.summary_form.format(text)


_ALL = frozenset(Ability)
_AGENT_ID = re.compile(r'"agent_id":\s*"([0-9a-f-]+)"')
_A = Ability

DIALECTS: Mapping[str, Dialect] = {
    "shell_agent": Dialect(
        tools={Op.shell: ("shell", lambda command: {"command": command})},
        abilities=_ALL - {_A.thinking, _A.background_agents, _A.resumes_cut_answers, _A.survives_malformed, _A.survives_overflow},
        summary_asked=("Summarise what you know.",),
        options={"max_calls": 12, "max_output_tokens": 4000, "context_tokens": 1_000_000},
        delegates_by_instruction=True,
        # It keeps 130 characters of what a command prints.
        window=400,
    ),
    "claude_code": Dialect(
        tools={
            Op.shell: ("Bash", lambda command: {"command": command, "description": "a step"}),
            Op.delegate: ("Agent", lambda text: {"description": "a part", "prompt": text, "run_in_background": False}),
            Op.background: ("Agent", lambda text: {"description": "a part", "prompt": text, "run_in_background": True}),
        },
        # Its own rule needs a window of 100,000 tokens and more.
        abilities=_ALL - {_A.compaction},
        window=38_000,
        summary_asked=("CRITICAL: Respond with TEXT ONLY",),
        summary_form="<analysis>All is clear.</analysis>\n<summary>{}</summary>",
        options={"max_calls": 0, "max_output_tokens": 32_000, "context_tokens": 200_000},
    ),
    "codex": Dialect(
        tools={
            Op.shell: ("exec_command", lambda command: {"cmd": command}),
            Op.delegate: ("spawn_agent", lambda text: {"message": text}),
            Op.background: ("spawn_agent", lambda text: {"message": text}),
            Op.await_agents: ("wait_agent", lambda agent: {"targets": [agent], "timeout_ms": 60_000}),
        },
        abilities=_ALL - {_A.resumes_cut_answers, _A.survives_overflow},
        summary_asked=("CONTEXT CHECKPOINT COMPACTION",),
        window_used=0.9,
        options={"max_calls": 0, "max_output_tokens": 32_000, "context_tokens": 200_000},
    ),
    "qwen_code": Dialect(
        tools={
            Op.shell: ("run_shell_command", lambda command: {"command": command, "is_background": False, "description": "a step"}),
            Op.delegate: ("agent", lambda text: {"description": "a part", "prompt": text, "run_in_background": False}),
            Op.background: ("agent", lambda text: {"description": "a part", "prompt": text, "run_in_background": True}),
        },
        abilities=_ALL - {_A.resumes_cut_answers},
        summary_asked=("You are the component that summarizes a conversation",),
        resume_asked=("The connection dropped mid-response",),
        role_words=("produce the <state_snapshot> XML.",),
        is_nameless=True,
        summary_form="<state_snapshot>{}</state_snapshot>",
        window_used=0.7,
        options={"max_calls": 0, "max_output_tokens": 32_000, "context_tokens": 200_000},
    ),
    "opencode": Dialect(
        tools={
            Op.shell: ("bash", lambda command: {"command": command, "description": "a step"}),
            Op.delegate: ("task", lambda text: {"description": "a part", "prompt": text, "subagent_type": "general"}),
        },
        # After an overflow it does its work and ends with code 1 all the same.
        abilities=_ALL - {_A.background_agents, _A.resumes_cut_answers, _A.survives_overflow},
        summary_asked=("anchored summary",),
        helper_asked=("Generate a title for this conversation",),
        role_words=("title generator",),
        helper_answer="Rehearsal",
        window_kept=8_000,
        options={"max_calls": 0, "max_output_tokens": 8_000, "context_tokens": 200_000},
    ),
    "mini_swe_agent": Dialect(
        tools={Op.shell: ("bash", lambda command: {"command": command})},
        abilities=frozenset({_A.parallel_calls}),
        farewell="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        options={"max_calls": 0, "max_output_tokens": 8_000, "context_tokens": 200_000},
    ),
}


def dialect_of(harness: str) -> Dialect:
    """Raises UserError for a harness that no script speaks to."""
    if harness not in DIALECTS:
        raise UserError("NAME", harness, f"no rehearsal for it; there is one for {', '.join(DIALECTS)}")
    return DIALECTS[harness]
