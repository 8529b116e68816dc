"""Typed partials of metrics: each knows how two of them merge, so that a mean of means cannot happen. Immutable."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self


class Partial(ABC):
    """Part of a metric, seen by one process or during one stretch of time."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Both parts as one. Associative and commutative."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The number to show; nan while nothing was seen."""


@dataclass(frozen=True, slots=True)
class Mean(Partial):
    """Weighted mean."""

    total: float = 0.0
    weight: float = 0.0

    @classmethod
    def of(cls, value: float, weight: float = 1.0) -> Self:
        """One value seen `weight` times."""
        return cls(value * weight, weight)

    def merge(self, other: Self) -> Self:
        return type(self)(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else float("nan")


@dataclass(frozen=True, slots=True)
class Max(Partial):
    largest: float = float("-inf")

    def merge(self, other: Self) -> Self:
        return type(self)(max(self.largest, other.largest))

    @property
    def value(self) -> float:
        return self.largest if self.largest != float("-inf") else float("nan")


@dataclass(frozen=True, slots=True)
class Sum(Partial):
    total: float = 0.0

    def merge(self, other: Self) -> Self:
        return type(self)(self.total + other.total)

    @property
    def value(self) -> float:
        return self.total


def merged(parts: Iterable[Mapping[str, Partial]]) -> dict[str, Partial]:
    """All parts of each name as one. Raises TypeError when a name is of two types."""
    result: dict[str, Partial] = {}
    for part in parts:
        for name, partial in part.items():
            known = result.get(name)
            if known is not None and type(known) is not type(partial):
                raise TypeError(f"metric {name} is {type(known).__name__} here and {type(partial).__name__} there")
            result[name] = partial if known is None else known.merge(partial)
    return result
