"""Task suites. One file or folder per kind."""

import random
from collections.abc import Callable
from functools import partial

from gyre_hpc.config.schema import SuiteConfig
from gyre_hpc.errors import UserError
from gyre_hpc.suites.base import Suite
from gyre_hpc.suites.shell_drill import ShellDrill, scripted_answer
from gyre_hpc.suites.shell_drill.blind import blind_pass_rate

ScriptedAgent = Callable[[str, random.Random], str]
"""(prompt text, dice) -> text of the answer, without the end-of-turn mark. Stateless."""


def create_suite(config: SuiteConfig, seed: int) -> Suite:
    """The suite of `suite.name`; `seed` chooses its tasks. Raises UserError for an unknown name."""
    if config.name != ShellDrill.name:
        raise UserError("suite.name", config.name, f"no such suite; known: {ShellDrill.name}")
    return ShellDrill(seed)


def create_scripted_agent(config: SuiteConfig, sloppiness: float) -> ScriptedAgent:
    """The agent the warm start imitates. Raises UserError when the suite has none."""
    if config.name != ShellDrill.name:
        raise UserError("warm_start.executions", config.name, "this suite has no scripted agent; set warm_start.executions=0")
    return partial(scripted_answer, sloppiness=sloppiness)


def blind_passes(config: SuiteConfig, seed: int, num_tasks: int) -> int | None:
    """Held-out tasks, of the first `num_tasks`, passed by a script that never reads a file; None when the suite has none."""
    if config.name != ShellDrill.name:
        return None
    return round(num_tasks * blind_pass_rate(ShellDrill(seed), num_tasks, seed))
