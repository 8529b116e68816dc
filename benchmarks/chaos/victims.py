"""Whom to kill next: a seeded deck of kinds, and whoever of that kind lives now. Pure.

Invariants (each has a test):
  - each kind comes once in every round of the deck, in an order that the seed alone decides;
  - the core is never a victim: its loss is another matter, the batch is done again from a checkpoint;
  - a kind of which nobody is there at the moment is put off, not dropped.
"""

import enum
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field


class Kind(enum.Enum):
    satellite = "satellite"
    rollout = "rollout"
    gateway = "gateway"
    runner = "runner"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What can be killed now."""

    cells: Mapping[str, str] = field(default_factory=dict)
    """State of each registered cell but the core, as it last said: rollout, train, ..."""
    gateways: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()

    def of(self, kind: Kind) -> list[str]:
        """Processes of a kind, sorted."""
        match kind:
            case Kind.satellite:
                return sorted(name for name, state in self.cells.items() if state == "train")
            case Kind.rollout:
                return sorted(name for name, state in self.cells.items() if state == "rollout")
            case Kind.gateway:
                return sorted(self.gateways)
            case Kind.runner:
                return sorted(self.runners)


class Deck:
    """Draws victims and the pauses between them."""

    def __init__(self, seed: int, mean_s: float) -> None:
        self._dice = random.Random(seed)
        self._mean_s = mean_s
        self._next: deque[Kind] = deque()

    def pause_s(self) -> float:
        """Seconds until the next kill: the mean, a third more or less."""
        return self._mean_s * self._dice.uniform(2 / 3, 4 / 3)

    def draw(self, scene: Scene) -> tuple[Kind, str] | None:
        """The first kind in the deck of which somebody is there, and one of them; None when nobody is."""
        if not self._next:
            self._next.extend(self._dice.sample(list(Kind), len(Kind)))
        for kind in self._next:
            if names := scene.of(kind):
                self._next.remove(kind)
                return kind, self._dice.choice(names)
        return None
