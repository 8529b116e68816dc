"""A run's journal as a trace of its training executions: python -m benchmarks.routing.record RUN > FILE.

One JSON object a line. The first: {"format": 1, "run", "common": {role: tokens every prompt of that role begins with}}. Then
one execution each, in order of its first call:

    {"exec": "train-0-3-1", "group": "train-0-3", "start": seconds since the first one,
     "calls": [[issued, parent, role, shared, suffix, output, tool_s], ...]}

issued: seconds since its first call; parent: index of the call whose answer its context goes on from, -1 for a prompt from
scratch; shared: of a prompt from scratch, tokens that all of its group have in common at that role; suffix: tokens of its own
after the parent's answer (the whole prompt without a parent); output: tokens sampled; tool_s: seconds from the end of its
answer to the next call, or to nothing after the last. Calls are taken one after another; one that began beside the call
before it has tool_s 0 there. Tokens and tool seconds are the invariants; what a call took belongs to the run it is from.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from gyre_hpc.protocol.identity import ExecutionId
from gyre_hpc.report.calls import Pieces, read_calls

FORMAT = 1


def trace(run: str, most: int) -> Iterable[dict[str, Any]]:
    """Lines of the trace, of the first `most` executions."""
    executions: dict[str, list[Pieces]] = defaultdict(list)
    for call, pieces in read_calls(run).items():
        if call.startswith("train-") and pieces.end is not None:
            executions[call.rpartition("/")[0]].append(pieces)
    order = sorted(executions, key=lambda name: executions[name][0].begin.time)[:most]
    group_of = {name: str(ExecutionId.parse(name).group_id) for name in order}
    roots: dict[str, list[bytes]] = defaultdict(list)
    for name in order:
        for pieces in executions[name]:
            if pieces.begin.parent is None:
                roots[pieces.begin.role].append(pieces.begin.suffix_ids)
                roots[f"{group_of[name]} {pieces.begin.role}"].append(pieces.begin.suffix_ids)
    common = {key: _common(prompts) for key, prompts in roots.items()}
    yield {"format": FORMAT, "run": "quickstart", "common": {role: num for role, num in common.items() if " " not in role}}
    first = executions[order[0]][0].begin.time
    for name in order:
        began = executions[name][0].begin.time
        calls = list(_calls(executions[name], group_of[name], common))
        yield {"exec": name, "group": group_of[name], "start": round(began - first, 2), "calls": calls}


def _calls(pieces: list[Pieces], group: str, common: dict[str, int]) -> Iterable[list[Any]]:
    index = {one.begin.call: place for place, one in enumerate(pieces)}
    for place, one in enumerate(pieces):
        begin, end = one.begin, one.end
        assert end is not None
        later = pieces[place + 1].begin.time if place + 1 < len(pieces) else end.time
        shared = common[f"{group} {begin.role}"] if begin.parent is None else 0
        yield [
            round(begin.time - pieces[0].begin.time, 2),
            index[begin.parent] if begin.parent is not None else -1,
            begin.role,
            shared,
            len(begin.suffix_ids) // 4,
            one.num_output,
            round(max(later - end.time, 0.0), 3),
        ]


def _common(prompts: list[bytes]) -> int:
    """Tokens that all begin with."""
    least, most = min(prompts), max(prompts)
    num = next((place for place in range(min(len(least), len(most))) if least[place] != most[place]), min(len(least), len(most)))
    return num // 4


def main() -> None:
    parser = argparse.ArgumentParser(description="A run's journal as a trace of calls.")
    parser.add_argument("run", help="run folder")
    parser.add_argument("--executions", type=int, default=960, help="how many, from the first on (default 960)")
    args = parser.parse_args()
    for line in trace(args.run, args.executions):
        print(json.dumps(line, separators=(",", ":")))


if __name__ == "__main__":
    main()
