"""Values of this room: what the scripted model says, what happens in the middle of it, what must be true afterwards."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Op(enum.Enum):
    """Something the scripted model wants done; a dialect makes a tool call of it."""

    shell = "shell"
    delegate = "delegate"
    """To a sub-agent."""
    background = "background"
    """To a sub-agent that works while the main one goes on."""
    await_agents = "await_agents"


@dataclass(frozen=True, kw_only=True, slots=True)
class Do:
    """One tool call."""

    op: Op
    text: str = ""
    """Command, or the sub-agent's instruction."""


class Moment(enum.Enum):
    """What happens while an answer is on its way."""

    role_switch = "role_switch"
    """The cell leaves the table and ends its calls with what they have; they go on elsewhere."""
    cell_lost = "cell_lost"
    """The cell's process is killed."""
    slow_cell = "slow_cell"
    """Nothing comes for several keep-alive intervals."""
    gateway_restart = "gateway_restart"
    """The shard goes, and comes back on its port with nothing but its journal."""
    weights = "weights"
    """The cells go over to the next version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Say:
    """One answer of the scripted model."""

    text: str = ""
    does: tuple[Do, ...] = ()
    thinking: str = ""
    broken: str = ""
    """A tool call that no parser takes, without its marks."""
    is_endless: bool = False
    """No end of turn: only the limit of output tokens ends it."""
    is_wordless: bool = False
    """No text: its mark stands in the command of its tool call."""
    moment: Moment | None = None
    """Happens once a part of this answer is out."""
    moment_after: float = 0.5
    """The part, as a share of its tokens; 0: the first token, which shows nothing yet."""


class Ability(enum.Enum):
    """What a harness can do and a scenario needs."""

    parallel_calls = "parallel_calls"
    sub_agents = "sub_agents"
    background_agents = "background_agents"
    compaction = "compaction"
    """By its own rule, before its window is full."""
    survives_overflow = "survives_overflow"
    """Compacts when a request is refused because the context is full."""
    resumes_cut_answers = "resumes_cut_answers"
    """After an answer that hit the limit of output tokens it lets the model go on."""
    thinking = "thinking"
    survives_malformed = "survives_malformed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One rehearsed conversation. `parts`: what each agent says, step by step; part `main` begins."""

    name: str
    about: str
    parts: Mapping[str, tuple[Say, ...]]
    times: Mapping[str, int] = field(default_factory=dict)
    """How often a part is played; once when not named."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What the workspace must hold afterwards."""
    needs: frozenset[Ability] = frozenset()
    window: int = 0
    """Tokens beyond the first prompt after which the context is full; 0: it never is."""
    is_refused: bool = False
    """What does not fit is refused; else the harness knows its window."""
    longest_answer: int = 0
    """Limit of output tokens; 0: enough for everything."""

    @property
    def moments(self) -> tuple[Moment, ...]:
        """What happens in it, in order."""
        return tuple(say.moment for says in self.parts.values() for say in says if say.moment is not None)


VERSIONS = ("0.0", "0.1")
"""Weights that every rehearsed cell has, older first."""
