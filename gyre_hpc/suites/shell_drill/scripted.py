"""A scripted, sloppy agent for shell_drill. It sees nothing but the prompt's text, so it is stateless and can answer through the
real harness, gateway and engine surface.

Sloppiness p: going through the files, the agent stops looking with probability p at each; for those it did not look at it
writes a placeholder.
"""

import random
import re
from dataclasses import dataclass
from itertools import takewhile

_CALL = '<tool_call>{"name":"shell","arguments":{"command":"%s"}}</tool_call>'
_PLACEHOLDER = "0"
"""What it writes for a number it did not look up: the lazy way, and never right."""
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)
_COMMAND = re.compile(r'"command":"(.*)"\}\}</tool_call>$', re.DOTALL)
_SENTENCE = re.compile(
    r"(?P<join>Join )?(?P<count>Count lines of )?(?P<rename>Rename h by )?(?P<config>Set )?(?P<script>Make s print )?(?P<files>.*?)"
    r"(?: into (?P<target>\w))?(?: in c)?\.(?:\n|$)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What the prompt shows."""

    family: str
    files: tuple[str, ...]
    target: str
    known: dict[str, str]
    """Numbers read so far, by file."""
    num_commands: int
    wrote: bool
    compacts: bool


def scripted_answer(prompt: str, rng: random.Random, sloppiness: float) -> str:
    """Answer of the agent to a drill prompt, without the end-of-turn mark."""
    seen = _look(prompt)
    if seen.compacts:
        return " ".join(f"{name} {seen.known[name]}" for name in seen.files if name in seen.known)
    if seen.wrote:
        return "ok"
    if not seen.num_commands and not seen.known:
        chosen = list(takewhile(lambda _: rng.random() >= sloppiness, seen.files))
        if chosen:
            return _CALL % (("grep -Hc . " if seen.family == "count" else "grep -H . ") + " ".join(chosen))
    if seen.known and rng.random() < sloppiness:
        return "ok"
    values = [seen.known.get(name, _PLACEHOLDER) for name in seen.files]
    return _CALL % _write(seen, values)


def _write(seen: _Seen, values: list[str]) -> str:
    """The numbers first, as positional parameters: so every family writes them down in the same way."""
    numbers = " ".join(f"${place}" for place in range(1, len(values) + 1))
    match seen.family:
        case "rename":
            then = f"mv h {numbers.replace(' ', '-')}"
        case "config":
            then = "sed -i" + "".join(f" -e s/{key}=.*/{key}=${place}/" for place, key in enumerate("xy"[: len(values)], start=1)) + " c"
        case "script":
            then = f"echo echo {numbers} >s"
        case _:
            then = f"echo {numbers} >{seen.target}"
    return f"set {' '.join(values)};{then}"


def _look(prompt: str) -> _Seen:
    turns = [(match[1], match[2]) for match in _TURN.finditer(prompt)]
    task = next((text for role, text in turns if role == "user"), "")
    match = _SENTENCE.match(task)
    family = next((name for name in ("count", "rename", "config", "script") if match and match[name]), "join")
    files = tuple(re.findall(r"\b([a-z])(?= and |$)", match["files"])) if match else ()
    known: dict[str, str] = {}
    wrote = False
    commands = 0
    asked: list[str] = []
    for role, text in turns:
        command = _COMMAND.search(text) if role == "assistant" else None
        if command is not None:
            commands += 1
            asked = command[1].split()
            wrote = not command[1].startswith("grep ")
        elif role == "tool":
            known |= _numbers(asked, text)
    notes = re.search(r"\nNotes: (.*)", task)
    if notes:
        known |= dict(re.findall(r"([a-z]) (\d+)", notes[1]))
    return _Seen(
        family=family,
        files=files,
        target=(match["target"] or "") if match else "",
        known=known,
        num_commands=commands,
        wrote=wrote,
        compacts=bool(turns) and turns[-1] == ("user", "Summarise what you know."),
    )


def _numbers(asked: list[str], output: str) -> dict[str, str]:
    """Which file showed which number."""
    return dict(re.findall(r"([a-z]):(\d+)", output)) if asked[:1] == ["grep"] else {}
