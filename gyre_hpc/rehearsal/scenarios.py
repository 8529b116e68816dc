"""The rehearsed conversations, harness-neutral. Every answer carries a mark of its part and step, which is all the script goes by."""

from gyre_hpc.errors import UserError
from gyre_hpc.rehearsal.base import Ability, Do, Moment, Op, Say, Scenario

_LONG = " ".join(f"Point {number} of the plan is to go on quietly." for number in range(1, 13))
"""Long enough that something can happen in its middle."""
_MUCH = "seq -w 1000 3999"
"""Prints 15 KB, so that a few of them fill a context."""


def _shell(command: str) -> Do:
    return Do(op=Op.shell, text=command)


def _disturbed(moment: Moment, about: str) -> Scenario:
    """The same work each time: a long answer with a tool call in which it happens, then an end."""
    return Scenario(
        name=moment.value,
        about=about,
        parts={
            "main": (
                Say(text="First a look.", does=(_shell("echo one > one.txt"),)),
                Say(text=_LONG, does=(_shell("cat one.txt > two.txt"),), moment=moment),
                Say(text="Both files are there."),
            )
        },
        files={"one.txt": "one\n", "two.txt": "one\n"},
    )


def _filling(is_refused: bool, name: str, about: str) -> Scenario:
    """Results that fill the context."""
    return Scenario(
        name=name,
        about=about,
        parts={
            "main": (
                Say(text="Much to read.", does=(_shell(_MUCH),)),
                Say(text="More to read.", does=(_shell(_MUCH),)),
                Say(text="And more.", does=(_shell(_MUCH),)),
                Say(text="Enough.", does=(_shell("echo read > read.txt"),)),
                Say(text="All was read."),
            )
        },
        files={"read.txt": "read\n"},
        needs=frozenset({Ability.survives_overflow if is_refused else Ability.compaction}),
        window=20_000,
        is_refused=is_refused,
    )


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="text", about="one answer without tools", parts={"main": (Say(text="Nothing has to be done."),)}),
    Scenario(
        name="tools",
        about="three rounds of tool use, with quotes, escapes and letters beyond ASCII",
        parts={
            "main": (
                Say(text="  I write a file.\n\n", does=(_shell("printf 'a\\tb\\n' > tab.txt"),)),
                Say(does=(_shell('echo "gr\u00fcn \u2713 \\"quoted\\"" > words.txt'),)),
                Say(text="And I count.", does=(_shell("cat tab.txt words.txt | wc -l > count.txt"),)),
                Say(text="Three files, done. \u2713"),
            )
        },
        files={"tab.txt": "a\tb\n", "words.txt": 'gr\u00fcn \u2713 "quoted"\n', "count.txt": "2\n"},
    ),
    Scenario(
        name="parallel_calls",
        about="two tool calls in one answer",
        parts={
            "main": (
                Say(text="Both at once.", does=(_shell("echo a > a.txt"), _shell("echo b > b.txt"))),
                Say(text="Both done."),
            )
        },
        files={"a.txt": "a\n", "b.txt": "b\n"},
        needs=frozenset({Ability.parallel_calls}),
    ),
    Scenario(
        name="malformed",
        about="a tool call that cannot be parsed: the agent hears of it and goes on",
        parts={
            "main": (
                Say(text="A slip of the pen.", broken='{"name": "shell", "arguments": {"command": '),
                Say(text="Once more.", does=(_shell("echo right > right.txt"),)),
                Say(text="Now it is right."),
            )
        },
        files={"right.txt": "right\n"},
        needs=frozenset({Ability.survives_malformed}),
    ),
    Scenario(
        name="thinking",
        about="answers that begin with reasoning; one goes straight to a tool call",
        parts={
            "main": (
                Say(thinking="I should look first.\nThen write.", text="I write.", does=(_shell("echo t > t.txt"),)),
                Say(thinking="No word is needed.", does=(_shell("cat t.txt > u.txt"),)),
                Say(thinking="That was all.", text="Thought and done."),
            )
        },
        files={"t.txt": "t\n", "u.txt": "t\n"},
        needs=frozenset({Ability.thinking}),
    ),
    Scenario(
        name="sub_agent",
        about="part of the work goes to a sub-agent, the main agent waits for it",
        parts={
            "main": (
                Say(text="Somebody else may begin.", does=(Do(op=Op.delegate, text="Write side.txt. [[begin side sub_agent]]"),)),
                Say(text="I finish.", does=(_shell("cat side.txt > main.txt"),)),
                Say(text="Finished together."),
            ),
            "side": (Say(text="Mine.", does=(_shell("echo side > side.txt"),)), Say(text="side.txt is there.")),
        },
        files={"side.txt": "side\n", "main.txt": "side\n"},
        needs=frozenset({Ability.sub_agents}),
    ),
    Scenario(
        name="twin_agents",
        about="two identical sub-agents at once: two calls each, none taken for the other's retry",
        parts={
            "main": (
                Say(
                    text="Two of a kind.",
                    does=(Do(op=Op.delegate, text="Add a line. [[begin twin twin_agents]]"),) * 2,
                ),
                Say(text="Both came back."),
            ),
            "twin": (Say(text="One line.", does=(_shell("echo twin >> twins.txt"),)), Say(text="A line is added.")),
        },
        times={"twin": 2},
        files={"twins.txt": "twin\ntwin\n"},
        needs=frozenset({Ability.sub_agents, Ability.parallel_calls}),
    ),
    Scenario(
        name="background_agent",
        about="a sub-agent works while the main agent goes on",
        parts={
            "main": (
                Say(text="Begin without me.", does=(Do(op=Op.background, text="Write back.txt. [[begin back background_agent]]"),)),
                Say(text="Meanwhile.", does=(_shell("echo front > front.txt"),)),
                Say(text="I wait.", does=(Do(op=Op.await_agents),)),
                Say(text="Both are there."),
            ),
            "back": (Say(text="Mine.", does=(_shell("echo back > back.txt"),)), Say(text="back.txt is there.")),
        },
        files={"back.txt": "back\n", "front.txt": "front\n"},
        needs=frozenset({Ability.background_agents}),
    ),
    _filling(False, "compaction", "the context fills up, the harness has it summarised in time and goes on"),
    _filling(True, "overflow", "a request does not fit any more and is refused; the harness has its history summarised and goes on"),
    Scenario(
        name="cut_answer",
        about="an answer hits the limit of output tokens and the harness lets the model go on",
        parts={
            "main": (
                Say(text=_LONG, is_endless=True),
                Say(text="To the point.", does=(_shell("echo cut > cut.txt"),)),
                Say(text="Done after all."),
            )
        },
        files={"cut.txt": "cut\n"},
        needs=frozenset({Ability.resumes_cut_answers}),
        longest_answer=200,
    ),
    _disturbed(Moment.role_switch, "the cell changes its role in mid-answer"),
    _disturbed(Moment.cell_lost, "the cell's process is killed in mid-answer"),
    _disturbed(Moment.slow_cell, "nothing comes for several keep-alive intervals"),
    Scenario(
        name="slow_tool_call",
        about="a long silence before an answer that is nothing but a tool call",
        parts={
            "main": (
                Say(is_wordless=True, does=(_shell("echo w > w.txt"),), moment=Moment.slow_cell, moment_after=0.0),
                Say(text="Not a word was needed."),
            )
        },
        files={"w.txt": "w\n"},
    ),
    Scenario(
        name="slow_thinking",
        about="a long silence before an answer that begins with reasoning and goes straight to a tool call",
        parts={
            "main": (
                Say(thinking=_LONG, is_wordless=True, does=(_shell("echo v > v.txt"),), moment=Moment.slow_cell, moment_after=0.0),
                Say(text="Thought long."),
            )
        },
        files={"v.txt": "v\n"},
        needs=frozenset({Ability.thinking}),
    ),
    _disturbed(Moment.weights, "new weights in mid-answer"),
    _disturbed(Moment.gateway_restart, "the gateway shard is gone in mid-answer and comes back on its port"),
)
"""Small ones first: what fails there would fail everywhere."""


def scenario_named(name: str) -> Scenario:
    """Raises UserError."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    raise UserError("--scenario", name, f"use one of {', '.join(scenario.name for scenario in SCENARIOS)}")
