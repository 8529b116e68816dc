"""Seconds of a role change by step, from the order to the new role. The parts add up to the whole."""

from dataclasses import dataclass, field

from gyre_hpc.protocol.to_batch import CellState, SwitchTiming


@dataclass(kw_only=True, slots=True)
class Timing:
    origin: CellState
    """rollout or train: the role that is left."""
    mark: float
    """Monotonic time up to which seconds are attributed."""
    steps: dict[str, float] = field(default_factory=dict)

    def add(self, now: float, step: str) -> None:
        """What passed since the last mark belongs to `step`."""
        self.steps[step] = self.steps.get(step, 0.0) + (now - self.mark)
        self.mark = now

    def finished(self, term: int, arrived: CellState) -> SwitchTiming | None:
        """None when the cell came back to the role it had begun to leave."""
        if arrived is self.origin:
            return None
        direction = "rollout_to_train" if arrived is CellState.train else "train_to_rollout"
        return SwitchTiming(term=term, direction=direction, steps=dict(self.steps))
