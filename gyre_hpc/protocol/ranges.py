"""A set of whole numbers, kept as the runs it consists of: as small as it is nearly whole, however many it holds."""

from collections.abc import Iterable, Iterator

import msgspec


class Ranges(msgspec.Struct, frozen=True):
    """Equal sets are equal values."""

    runs: tuple[tuple[int, int], ...] = ()
    """(first, one behind the last), ascending, with a gap between any two."""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Ranges":
        """Of any numbers, in any order, repeated or not."""
        return cls().united((number, number + 1) for number in numbers)

    def united(self, runs: Iterable[tuple[int, int]]) -> "Ranges":
        """With all numbers of `runs` too: (first, one behind the last) each, in any order, overlapping or not."""
        merged: list[tuple[int, int]] = []
        for first, behind in sorted((*self.runs, *runs)):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], behind)
            elif first < behind:
                merged.append((first, behind))
        return Ranges(tuple(merged))

    def __contains__(self, number: int) -> bool:
        return any(first <= number < behind for first, behind in self.runs)

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        return (number for first, behind in self.runs for number in range(first, behind))

    def __len__(self) -> int:
        return sum(behind - first for first, behind in self.runs)
