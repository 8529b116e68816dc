"""Ends of executions one after the other of which none left a token to train on. Pure counting; giving_up.py says what follows.

What counts: an end without a score that the execution's own runner decided (infra_error, unscored), each try for itself; one with a score whose
group held nothing when it was prepared. What begins anew: a score after a sampled token, a group with something to train. Neither: a process that
is gone with its runner (preemption, a lost node), a score of which no token is known yet, since the report of it may be under way.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable

from gyre_hpc.protocol.to_batch import Ended, ScoreState

_NUMBERS = re.compile(r"\d+")
_SCORED = (ScoreState.scored, ScoreState.partial)


class Fruitless:
    """The row as it stands."""

    def __init__(self) -> None:
        self.is_told = False
        """An alarm was given in this row."""
        self._ends: dict[str, Ended] = {}
        self._runners: set[str] = set()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def reason(self) -> str:
        return commonest(self._ends.values())

    def is_everywhere(self, at_work: Iterable[str]) -> bool:
        """Every runner at work has had an end in this row. One where all fail at once takes most executions, while the others still compute."""
        return self._runners.issuperset(at_work)

    def clear(self) -> None:
        self.is_told = False
        self._ends.clear()
        self._runners.clear()

    def take_end(self, ended: Ended, runner: str, has_sampled: bool) -> None:
        """runner: empty where it is not known, after a restart."""
        is_scored = ended.state in _SCORED
        if ended.is_lost:
            return
        if is_scored and has_sampled:
            self.clear()
            return
        self._runners |= {runner} - {""}
        if not is_scored:
            self._ends[ended.execution] = ended

    def take_group(self, ends: Iterable[Ended], num_trained: int) -> None:
        """A group was prepared. num_trained: executions of it with a token to train on."""
        if num_trained:
            self.clear()
            return
        self._ends |= {ended.execution: ended for ended in ends if ended.state in _SCORED}


def commonest(ends: Collection[Ended]) -> str:
    """The most frequent reason, as the newest of its kind gave it, and how many gave it. Ids and numbers make no other reason."""
    alike: dict[str, list[Ended]] = defaultdict(list)
    for ended in ends:
        alike[_NUMBERS.sub("0", _why(ended).replace(ended.execution, ""))].append(ended)
    if not alike:
        return "no execution has ended"
    most = max(alike.values(), key=len)
    return f"{_why(most[-1])} ({len(most)} of {len(ends)})"


def _why(ended: Ended) -> str:
    if ended.state in _SCORED:
        return f"{ended.state.value}, but without a token to train on" + (f": {ended.reason}" if ended.reason else "")
    return f"{ended.state.value}: {ended.reason or 'no reason was given'}"
