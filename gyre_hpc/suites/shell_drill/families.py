"""The task families of shell_drill: what a part of a task says, which files it starts from, what counts as done.

A part asks for the numbers of one or two source files to be put somewhere. Numbers are drawn afresh for every task, so an
agent that does not look at the files cannot know them. Each number is one requirement.
"""

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass

SOURCES = "ab"
TARGETS = "defg"
VALUES = range(1, 10)
"""Where numbers are gathered; `c` is the config file, `s` the script, `h` the file to rename."""


class Family(enum.Enum):
    join = "join"
    count = "count"
    rename = "rename"
    config = "config"
    script = "script"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One sentence of a task."""

    family: Family
    sources: tuple[str, ...]
    values: tuple[str, ...]
    """What the sources hold (count: how many lines), in the order of `sources`."""
    target: str
    """File the numbers go to, or whose name they become."""
    padding: int = 0
    """Characters of filler after each number, to make reading expensive."""


def draw_part(rng: random.Random, family: Family, sources: str, target: str, padding: int = 0) -> Part:
    """A part with fresh numbers. `target` counts for the families that choose one."""
    values = tuple(str(value) for value in rng.sample(VALUES, len(sources)))
    fixed = {Family.config: "c", Family.script: "s", Family.rename: "h"}
    return Part(family=family, sources=tuple(sources), values=values, target=fixed.get(family, target), padding=padding)


def sentence(part: Part) -> str:
    """What the agent is told."""
    files = " and ".join(part.sources)
    match part.family:
        case Family.join:
            return f"Join {files} into {part.target}."
        case Family.count:
            return f"Count lines of {files} into {part.target}."
        case Family.rename:
            return f"Rename {part.target} by {files}."
        case Family.config:
            wanted = " and ".join(f"{key} to {source}" for key, source in zip("xy", part.sources, strict=False))
            return f"Set {wanted} in {part.target}."
        case Family.script:
            return f"Make {part.target} print {files}."


def start_files(rng: random.Random, part: Part) -> dict[str, str]:
    """Files the workspace holds at the start."""
    if part.family is Family.count:
        files = {
            name: "".join(f"{rng.choice('pqruv')}\n" for _ in range(int(value)))
            for name, value in zip(part.sources, part.values, strict=True)
        }
    else:
        files = {name: value + "." * part.padding + "\n" for name, value in zip(part.sources, part.values, strict=True)}
    if part.family is Family.config:
        files[part.target] = "".join(f"{key}={rng.randrange(60, 100)}\n" for key in "xyz")
    if part.family is Family.rename:
        files[part.target] = "moved\n"
    if part.family is Family.script:
        files[part.target] = f"echo {rng.randrange(60, 100)}\n"
    return files


def requirements(part: Part, start: Mapping[str, str], found: Mapping[str, str]) -> list[bool]:
    """One verdict per number. `start` and `found`: workspace texts before and after."""
    text = found.get(part.target, "")
    match part.family:
        case Family.join | Family.count:
            return _same_words(text.split(), part.values)
        case Family.script:
            words = text.replace('"', " ").replace("'", " ").split()
            return _same_words(words[1:], part.values) if words[:1] == ["echo"] else [False] * len(part.values)
        case Family.config:
            return _config(part, _settings(start[part.target]), _settings(text))
        case Family.rename:
            return _rename(part, start[part.target], found)


def _rename(part: Part, text: str, found: Mapping[str, str]) -> list[bool]:
    """The one file with the old text must have the numbers, joined by dashes, as its name."""
    names = [name for name, other in found.items() if other == text]
    return _same_words(names[0].split("-") if len(names) == 1 else [], part.values)


def _same_words(words: list[str], values: tuple[str, ...]) -> list[bool]:
    """Filler copied along with a number does no harm; a number too many or too few spoils all."""
    if len(words) != len(values):
        return [False] * len(values)
    return [word.rstrip(".") == value for word, value in zip(words, values, strict=True)]


def _settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _config(part: Part, before: dict[str, str], after: dict[str, str]) -> list[bool]:
    keys = "xyz"[: len(part.values)]
    rest_kept = all(after.get(key) == value for key, value in before.items() if key not in keys) and after.keys() == before.keys()
    return [rest_kept and after.get(key) == value for key, value in zip(keys, part.values, strict=True)]
