"""A cell's trainer: parameters, optimizer, sum, scratch. Dies with its process."""

from gyre_hpc.protocol.identity import Version
from gyre_hpc.simulation.process import ActionFailed
from gyre_hpc.simulation.store import Store
from gyre_hpc.simulation.weights import Content, Gradient, Sum, Weights


class Trainer:
    """`version` None: asleep. The optimizer stays in memory in both roles."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.version: Version | None = None
        self.weights: Weights | None = None
        self.optimizer: Weights | None = None
        """Weights the optimizer's state belongs to."""
        self.total: Sum = []
        self.kept: Sum | None = None
        self.scratch: Sum | None = None

    def wake(self, version: Version, restore: bool) -> None:
        self.weights = self._store.get(version)
        if restore and self.kept is None and self.version == version:
            # A rank was deaf when this was asked before.
            return
        self.version, self.total = version, []
        if restore:
            if self.kept is None:
                raise ActionFailed("AssertionError", "no sum was kept")
            self.total = self.kept
        self.kept = None

    def sleep(self, keep: bool) -> None:
        if self.version is not None or not keep:
            self.kept = self.total if keep else None
        self.version, self.weights, self.total = None, None, []

    def zero(self) -> None:
        self.total, self.kept, self.scratch = [], None, None

    def accumulate(self, content: Content) -> None:
        if self.version is None or self.weights is None:
            raise ActionFailed("ValueError", "this trainer is asleep")
        if content.version != self.version:
            raise ActionFailed("ValueError", f"micro-batch {content.id} is for {content.version}, this trainer has {self.version}")
        self.total = [*self.total, Gradient(content, self.weights)]

    def sum_bytes(self) -> Sum:
        return self.total if self.kept is None else self.kept

    def begin_from(self, version: Version, weights: Weights) -> None:
        """Parameters and optimizer of a checkpoint, of the configuration, or of a fit."""
        self._store.put(version, weights)
        self.optimizer = weights
        if self.version is not None:
            self.version, self.weights = version, weights

    def apply(self, version: Version) -> Weights:
        """Optimizer step from the scratch."""
        if self.scratch is None or self.weights is None:
            raise ActionFailed("RuntimeError", "there is no total")
        executions = dict.fromkeys(one for gradient in self.scratch for one in gradient.content.executions)
        self.weights = self.optimizer = self.weights.stepped(tuple(sorted(executions)))
        self.version, self.scratch = version, None
        self._store.put(version, self.weights)
        return self.weights
