"""One run to simulate, as a value: sizes, modes and every fault with its moment. Prints as text, replays exactly.

A fault strikes at a time, or when its target begins or ends something (`on`, e.g. `Apply:end`) for the nth time: crashes between
two steps of a protocol are what random times seldom hit.
"""

import enum

import msgspec

from gyre_hpc.config.schema import SchedulerMode, Staleness


class FaultKind(enum.Enum):
    crash = "crash"
    """The target ends at once; what it had not persisted is gone."""
    pause = "pause"
    """It stands still (SIGSTOP, a long swap) for `for_s`; what comes to it waits."""
    cut = "cut"
    """It and `other` (or everybody) do not hear each other for `for_s`."""
    storm = "storm"
    """Messages of everybody are lost, doubled, late and out of order, `share` of them, for `for_s`."""
    disk_full = "disk_full"
    """Its writes fail with StorageFull for `for_s`."""
    disk_slow = "disk_slow"
    """Its writes take up to `share` seconds, for `for_s`."""
    bad_start = "bad_start"
    """Its next `share` starts end before they register; with `for_s` they hang instead."""
    broken = "broken"
    """Its next action named `on` fails, after it took effect or before."""
    stall = "stall"
    """Its next action named `on` takes `for_s` longer."""
    odd_rank = "odd_rank"
    """Its next action named `on` is not heard by its last rank, or with `share` done by it without letting go of its memory."""
    rot = "rot"
    """Of the newest sum that was handed in to the core, a micro-batch is lost, from its manifest too, before the next commit looks at it."""
    preempt = "preempt"
    """The whole run is killed and resumed as the next attempt, but for `target`: it is not reached and goes on until it hears of that.
    With `share` it is told before, and has `for_s` to end in good order."""
    node_off = "node_off"
    """Power-off of the node that the target is on; with `for_s` its supervisor is started again after that."""
    node_cut = "node_cut"
    """What is on the node of the target hears nobody outside of it for `for_s`, nor the other way round."""
    node_join = "node_join"
    """A node that nobody planned comes with `share` cells, of the run's kind or of `other`; with `for_s` it vanishes after that."""
    node_leave = "node_leave"
    """The node's supervisor gets a signal to end."""
    order = "order"
    """A person orders `other` (a kind of order, or a file that cannot be read) of the target; simulation/people.py."""


_OTHER = {FaultKind.node_join: "of kind", FaultKind.order: "to"}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    kind: FaultKind
    target: str = ""
    at: float = 0.0
    """Simulated seconds; with `on` not before this."""
    for_s: float = 0.0
    share: float = 0.0
    other: str = ""
    on: str = ""
    nth: int = 1

    def __str__(self) -> str:
        parts = [f"{self.kind.value:<9} {self.target or '(all)'}"]
        parts.append(f"at {self.at:.3f} s" if not self.on else f"from {self.at:.3f} s on at {self.on} no. {self.nth}")
        if self.other:
            parts.append(f"{_OTHER.get(self.kind, 'towards')} {self.other}")
        if self.for_s:
            parts.append(f"for {self.for_s:.3f} s")
        if self.share:
            parts.append(f"share {self.share:.3f}")
        return ", ".join(parts)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a simulated run depends on."""

    seed: int
    cells: int = 4
    gateways: int = 2
    updates: int = 2
    groups_per_batch: int = 2
    group_size: int = 2
    evals: int = 2
    warm: int = 0
    warm_cached: bool = False
    """Another run has left its warm start."""
    capacity: int = 6
    ranks: int = 1
    """Of each cell."""
    kv: str = "none"
    """Capability of the engines: none, pages, pd or shared."""
    pairs: bool = False
    """Cells serve two by two, one prefills for the other one; KV is then `pd`."""
    nodes: int = 0
    """Beside the first one; each has a runner, and all but the first two cells are on them."""
    satellites: int = 0
    """Jobs that the run asks SLURM for while there is work for them."""
    mode: SchedulerMode = SchedulerMode.elastic
    staleness: Staleness = Staleness.wait
    max_staleness: int = 1
    checkpoint_before_publish: bool = True
    checkpoint_every: int = 1
    """Above 1 only without before_publish."""
    token_s: float = 0.04
    """Between two tokens of an engine."""
    max_calls: int = 64
    """Of one execution at once."""
    max_tokens: int = 0
    """Of one execution, 0: no limit."""
    faults: tuple[Fault, ...] = ()

    @property
    def pair_names(self) -> tuple[tuple[str, str], ...]:
        """(cell that prefills, cell that decodes)."""
        return tuple((f"cell-{index}", f"cell-{index + 1}") for index in range(0, self.cells - 1, 2)) if self.pairs else ()

    def __str__(self) -> str:
        size = f"{self.cells} cells, {self.gateways} gateways, {self.updates} updates of {self.groups_per_batch} x {self.group_size}"
        modes = f"{self.mode.value}, {self.staleness.value} {self.max_staleness}, before_publish {self.checkpoint_before_publish}, every {self.checkpoint_every}"
        cells = f"{self.ranks} ranks a cell, KV {self.kv}{' in pairs' if self.pairs else ''}{f', {self.nodes} more nodes' if self.nodes else ''}{f', {self.satellites} satellites' if self.satellites else ''}"
        limits = f"{self.max_calls} calls and {self.max_tokens or 'all'} tokens an execution, {self.token_s:g} s a token"
        head = f"seed {self.seed}: {size}, {self.evals} evaluations, {self.warm} warm, capacity {self.capacity}; {cells}; {modes}; {limits}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def encode(scenario: Scenario) -> bytes:
    """JSON, to keep or to edit."""
    return msgspec.json.encode(scenario)


def decode(data: bytes) -> Scenario:
    """Inverse of encode. Raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=Scenario)
