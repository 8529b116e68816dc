"""How often a script passes that never reads a file: it knows every sentence, every command, and guesses the numbers."""

import random
from dataclasses import replace

from gyre_hpc.suites.base import Task
from gyre_hpc.suites.shell_drill.families import VALUES, Family, Part
from gyre_hpc.suites.shell_drill.suite import ShellDrill, parts_of, score_files


def blind_pass_rate(suite: ShellDrill, num_tasks: int, seed: int) -> float:
    """Share of held-out tasks passed with guesses from the very range the numbers are drawn from."""
    rng = random.Random(f"blind/{seed}")
    tasks = [suite.task("heldout", index) for index in range(num_tasks)]
    return sum(score_files(task, blind_workspace(task, rng)).passed for task in tasks) / num_tasks


def blind_workspace(task: Task, rng: random.Random) -> dict[str, str]:
    """The workspace a blind script leaves."""
    found = dict(task.files)
    for part in parts_of(task):
        guess = replace(part, values=tuple(str(value) for value in rng.sample(VALUES, len(part.values))))
        _write(found, guess)
    return found


def _write(found: dict[str, str], guess: Part) -> None:
    match guess.family:
        case Family.join | Family.count:
            found[guess.target] = " ".join(guess.values) + "\n"
        case Family.script:
            found[guess.target] = f"echo {' '.join(guess.values)}\n"
        case Family.config:
            lines = dict(line.split("=") for line in found[guess.target].splitlines()) | dict(zip("xyz", guess.values, strict=False))
            found[guess.target] = "".join(f"{key}={value}\n" for key, value in lines.items())
        case Family.rename:
            found["-".join(guess.values)] = found.pop(guess.target)
