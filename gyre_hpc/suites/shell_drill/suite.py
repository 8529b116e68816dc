"""shell_drill: generated small terminal tasks, each a handful of shell commands.

A task is one part of two numbers, or two parts of one number of which the harness delegates the second (the line that begins
with `Also:`). The same (seed, split, index) is the same task for ever; splits draw from different generators.
"""

import os
import random
import stat
from pathlib import Path

import msgspec

from gyre_hpc.suites.base import Score, Suite, Task
from gyre_hpc.suites.shell_drill.families import SOURCES, TARGETS, Family, Part, draw_part, requirements, sentence, start_files

SPLITS = ("train", "heldout")
DELEGATION_MARK = "\nAlso: "
DELEGATING_SHARE = 0.25
PADDED_SHARE = 0.1
PADDING = 52
_LARGEST_FILE = 4096


class ShellDrill(Suite):
    """The suite. `seed` chooses the universe of tasks."""

    name = "shell_drill"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def task(self, split: str, index: int) -> Task:
        if split not in SPLITS or index < 0:
            raise ValueError(f"no task {split}/{index}: splits are {', '.join(SPLITS)}, indices start at 0")
        rng = random.Random(f"shell_drill/{self._seed}/{split}/{index}")
        parts = draw_parts(rng)
        files: dict[str, str] = {}
        for part in parts:
            files |= start_files(rng, part)
        return Task(
            suite=self.name,
            split=split,
            index=index,
            family="+".join(part.family.value for part in parts),
            instruction=DELEGATION_MARK.join(sentence(part) for part in parts),
            files=files,
            secret={"parts": msgspec.json.encode(parts).decode()},
            delegates=len(parts) > 1,
        )

    def score(self, task: Task, workspace: Path) -> Score:
        return score_files(task, read_workspace(workspace))


def draw_parts(rng: random.Random) -> list[Part]:
    """The parts of one task. Two parts share no file: each has a source of its own, and the families differ."""
    targets = rng.sample(TARGETS, 2)
    if rng.random() < DELEGATING_SHARE:
        families = rng.sample(list(Family), 2)
        return [draw_part(rng, *place) for place in zip(families, SOURCES, targets, strict=True)]
    if rng.random() < PADDED_SHARE:
        return [draw_part(rng, Family.join, SOURCES, targets[0], PADDING)]
    return [draw_part(rng, rng.choice(list(Family)), SOURCES, targets[0])]


def parts_of(task: Task) -> list[Part]:
    """What the checker knows of a task."""
    return msgspec.json.decode(task.secret["parts"], type=list[Part])


def score_files(task: Task, found: dict[str, str]) -> Score:
    """Score of a workspace given as texts."""
    parts = parts_of(task)
    verdicts = [requirements(part, task.files, found) for part in parts]
    flat = [verdict for part in verdicts for verdict in part]
    by_part = {f"{i}:{part.family.value}": sum(v) / len(v) for i, (part, v) in enumerate(zip(parts, verdicts, strict=True))}
    return Score(value=sum(flat) / len(flat), passed=all(flat), parts=by_part)


def read_workspace(workspace: Path) -> dict[str, str]:
    """Plain files at the top of the workspace, small ones only. Links and special files do not count."""
    found = {}
    with os.scandir(workspace) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE:
                found[entry.name] = _read(entry.path)
    return found


def _read(path: str) -> str:
    """Text of a file that was plain when listed; O_NOFOLLOW in case it is not any more. An agent may have taken the read permission: empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_LARGEST_FILE).decode("utf-8", errors="replace")
