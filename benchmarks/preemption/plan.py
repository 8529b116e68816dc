"""What is run: executions of a thousand tokens over several calls, with waits in place of compute, and the progress records of the default."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gyre_hpc.harnesses.program

CALLS = 8
MAX_OUTPUT_TOKENS = 512
_CLIENT = Path(str(gyre_hpc.harnesses.program.__file__)).parent
_TALKER = Path(__file__).with_name("talker.py")
_WORDS = (sys.executable, "-E", "-S", str(_TALKER), str(_CLIENT), str(CALLS), str(MAX_OUTPUT_TOKENS), "{instruction}")


def _quoted(words: Iterable[str]) -> str:
    """A list, as Hydra's command line has it."""
    return "[" + ",".join(f"'{word}'" for word in words) + "]"


BASE = (
    "+experiment=rehearsal", "harness=command", f"harness.command={_quoted(_WORDS)}",
    f"harness.readable={_quoted((str(_TALKER), str(_CLIENT), sys.prefix, sys.base_prefix))}",
    "model.max_context=8192", "cluster.cells=3", "algo.groups_per_batch=3", "algo.group_size=8",
    "cluster.runner_capacity=24", "engine.timed_tokens_per_s=900", "suite.soft_deadline_s=300", "suite.hard_deadline_s=320",
    "gateway.malformed_window=0",
)  # fmt: skip
"""At 8 calls beside each other an engine gives each one 56 tokens per second, about 20 s for an execution."""
KINDS = ("kill", "terminate", "stop")
"""kill: SIGKILL of all processes at once. terminate: SIGTERM to all at once, as SLURM does at a preemption. stop: the launcher is told to stop,
as `gyre stop` and SIGUSR2 do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How often a run is taken away, and when."""

    updates: int
    preemptions: tuple[str, ...]
    """Their kinds, one for each attempt but the last."""
    after_s: tuple[float, float] = (5.0, 25.0)
    """Drawn from between these, from the first token of an attempt."""
    within_s: float
    """Longest that one attempt may take."""


FULL = Plan(updates=8, preemptions=KINDS * 4, within_s=900)
QUICK = Plan(updates=2, preemptions=KINDS, within_s=140)
