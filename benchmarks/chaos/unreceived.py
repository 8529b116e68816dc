"""Tokens that an engine sampled and nobody received, over all incarnations of the gateway shards. Pure.

A shard begins to count anew when it was started again, so the last word of each incarnation is added up.
"""

from collections.abc import Mapping

_NAMES = ("unreceived", "eval_unreceived", "warm_unreceived")


class Unreceived:
    """Fed with what shards say of themselves, again and again."""

    def __init__(self) -> None:
        self._ended = 0
        self._latest: dict[str, dict[str, int]] = {}
        self._stale: dict[str, dict[str, int]] = {}
        """Last words of incarnations that are over: others may repeat them for a while."""

    @property
    def total(self) -> int:
        return self._ended + sum(map(_num, self._latest.values()))

    def count(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        """Counters of each shard. What falls was begun anew."""
        for shard, told in counters.items():
            counts = dict(told)
            if counts == self._stale.get(shard):
                continue
            if _num(counts) < _num(self._latest.get(shard, {})):
                self.restarted(shard)
            self._latest[shard] = counts

    def restarted(self, process: str) -> None:
        """This process was started; for anything but a shard that means nothing."""
        if process in self._latest:
            self._stale[process] = self._latest.pop(process)
            self._ended += _num(self._stale[process])


def _num(counts: Mapping[str, int]) -> int:
    return sum(counts.get(name, 0) for name in _NAMES)
