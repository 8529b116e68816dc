"""What is awake in a cell: the physical state that every step changes and every decision looks at.

Invariants: engine and trainer are never awake together; admission is open only while the engine is awake.
"""

from dataclasses import dataclass, field

from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import CellState, RankMemory

MOVES: dict[CellState, frozenset[CellState]] = {
    # A first order may ask for training straight away: a core that has to fit or to load before anybody can serve.
    CellState.starting: frozenset({CellState.rollout, CellState.train}),
    CellState.rollout: frozenset({CellState.draining}),
    CellState.draining: frozenset({CellState.switching, CellState.rollout}),
    CellState.switching: frozenset({CellState.train, CellState.rollout}),
    CellState.train: frozenset({CellState.handing_in, CellState.switching}),
    CellState.handing_in: frozenset({CellState.switching, CellState.train}),
    CellState.lost: frozenset(),
}
"""The drawn lifecycle (DESIGN §4). The ways back (draining -> rollout, handing_in -> train) serve a newer order."""


@dataclass(kw_only=True, slots=True)
class Body:
    """Engine, trainer and store as the finished steps left them."""

    admission: int | None = None
    """Term under which requests are taken; None: closed."""
    quiet: bool = True
    """No request is live, verified since admission closed."""
    engine: Version | None = None
    """Version served; None: the engine sleeps."""
    trainer: Version | None = None
    """Version trained from; None: the trainer sleeps."""
    parked: Version | None = None
    """Version whose parameters and optimizer a sleeping trainer of a core still holds."""
    store: set[Version] = field(default_factory=set)
    memory: tuple[RankMemory, ...] = ()
    memory_after: dict[str, tuple[RankMemory, ...]] = field(default_factory=dict)
    """By the step after which it was measured, newest figures."""
    half_asleep: bool = False
    """The engine was told to sleep or to wake and not every rank has acknowledged: it can do nothing but be told to sleep (again)."""
    half_awake: bool = False
    """The trainer was told to wake and not every rank has acknowledged: it may be awake."""
    above_limit: str = ""
    """The rank that holds more memory than it may while its engine sleeps; empty: none."""
    state: CellState = CellState.starting
    last: Version | None = None
    """Newest version served or trained from."""

    def move(self, state: CellState) -> None:
        """Go to `state`; a cell that has not had a role yet stays `starting` until it has one."""
        if state is self.state or (self.state is CellState.starting and state not in MOVES[self.state]):
            return
        assert state in MOVES[self.state], f"a cell cannot go from {self.state.value} to {state.value}"
        self.state = state

    def check(self) -> None:
        """Our own invariants; called after every input."""
        assert self.engine is None or self.trainer is None, "engine and trainer are awake together"
        assert self.admission is None or self.engine is not None, "admission is open while the engine sleeps"
        assert self.trainer is None or not self.above_limit, f"the cell trains above its memory limit: {self.above_limit}"

    @property
    def version(self) -> Version | None:
        return self.engine or self.trainer or self.last
