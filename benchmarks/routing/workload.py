"""Executions from a trace (record.py), and a heavy-tailed workload derived from the same trace.

A call's context is a chain of segments: what all prompts of its role begin with, what its group shares, its own text and
answer, then those of the calls that go on from it. Two contexts share a prefix exactly where their chains do.
"""

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "data" / "quickstart_calls.jsonl"
Segment = tuple[str, int]
"""(name, tokens)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of an execution, as it will be asked whatever the router does."""

    prefix: tuple[Segment, ...]
    """Context before its own text: recorded answers included."""
    own: str
    """Name of the segment of its own text and answer."""
    suffix: int
    """Tokens of its own text."""
    output: int
    tool_s: float
    """From the end of its answer to the next call."""
    parent: int

    @property
    def num_prompt(self) -> int:
        return sum(num for _, num in self.prefix) + self.suffix

    @property
    def num_shared(self) -> int:
        """Of a prompt from scratch: what others begin with too."""
        return sum(num for _, num in self.prefix) if self.parent < 0 else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    name: str
    group: str
    calls: tuple[Call, ...]


def recorded(most: int) -> list[Execution]:
    """The first `most` executions of the recorded run."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    common = json.loads(lines[0])["common"]
    return [_execution(json.loads(line), common) for line in lines[1 : most + 1]]


def heavy_tailed(most: int, seed: int = 0) -> list[Execution]:
    """Long ones: each chains the calls of several recorded executions (a Pareto number of them, alpha 1.1, at most 40) into
    one conversation; texts are 150 times as long, answers 25 times, tools take 100 times as long, each with a log-normal
    spread (sigma 1); every prompt begins with 2,000 tokens of its role and 3,000 of its group. Groups keep their size."""
    source, rng = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()[1:]], random.Random(seed)
    made = []
    for number in range(most):
        chained: list[list[Any]] = []
        for _ in range(min(40, int(rng.paretovariate(1.1)) + 1)):
            chained += _chain(len(chained), rng.choice(source)["calls"], rng)
        group = f"train-0-{number // 8}"
        line = {"exec": f"{group}-{number % 8}", "group": group, "calls": chained}
        made.append(_execution(line, {"main": 2000, "sub_agent": 2000}))
    return made


def _chain(start: int, calls: list[list[Any]], rng: random.Random) -> list[list[Any]]:
    """Recorded calls, scaled, behind `start` calls: a main prompt from scratch goes on from the last main call instead."""
    longer = []
    for issued, parent, role, _, suffix, output, tool_s in calls:
        is_root = parent < 0
        goes_on = is_root and role == "main" and start > 0
        before = start - 1 if goes_on else parent + start if not is_root else -1
        text = max(1, round(suffix * 150 * _spread(rng)))
        shared = 5000 if before < 0 else 0
        longer.append([issued, before, role, shared, shared + text, max(1, round(output * 25 * _spread(rng))), tool_s * 100 * _spread(rng)])
    return longer


def _spread(rng: random.Random) -> float:
    """Log-normal around 1, sigma 1, at most 20."""
    return min(20.0, rng.lognormvariate(-0.5, 1.0))


def _execution(line: dict[str, Any], common: dict[str, int]) -> Execution:
    calls: list[Call] = []
    for place, (_, parent, role, shared, suffix, output, tool_s) in enumerate(line["calls"]):
        if parent >= 0:
            above = calls[parent]
            prefix = (*above.prefix, (above.own, above.suffix + above.output))
        else:
            same = min(common[role], shared)
            prefix = tuple(one for one in ((role, same), (f"{line['group']} {role}", shared - same)) if one[1])
            suffix -= shared
        calls.append(Call(prefix=prefix, own=f"{line['exec']}/{place}", suffix=suffix, output=max(output, 1), tool_s=tool_s, parent=parent))
    return Execution(name=line["exec"], group=line["group"], calls=tuple(calls))


def shape(executions: list[Execution]) -> dict[str, float]:
    """What a workload is like, for the table."""
    prompts = sorted(call.num_prompt for one in executions for call in one.calls)
    return {
        "executions": len(executions),
        "calls": len(prompts),
        "prompt_p50": prompts[len(prompts) // 2],
        "prompt_p99": prompts[math.ceil(0.99 * len(prompts)) - 1],
        "output_mean": sum(call.output for one in executions for call in one.calls) / len(prompts),
        "tool_s_mean": sum(call.tool_s for one in executions for call in one.calls) / len(prompts),
    }
