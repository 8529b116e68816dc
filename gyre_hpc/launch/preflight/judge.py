"""What the probes of all nodes mean: a table for people, and what must be put right before the run can start there.

Pure. Trouble of weight `refuse` ends the start; `note` is only said.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gyre_hpc.config.schema import ClusterKind, Config, SandboxKind
from gyre_hpc.errors import UserError
from gyre_hpc.launch.preflight.facts import Connection, NodeProbe

LEAST_BYTES = {"run": 1 << 30, "scratch": 1 << 30, "cache": 64 << 20}
"""Free in a folder; far below what a run of days writes, but a full disk shows before hours of queueing are spent again."""
LEAST_INODES = 10_000
MOST_CLOCK_S = 5.0
"""Two clocks further apart make nonsense of events and deadlines that people read."""
SHOWN_CLOCK_S = 0.5
USED_SHARE = 0.1
"""Of a GPU's memory: above it somebody else computes there."""
MUST_AGREE = ("format", "sources", "gyre", "python", "torch", "sglang")
SHOULD_AGREE = ("driver",)


class Weight(enum.Enum):
    note = "note"
    refuse = "refuse"


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong at one node."""

    weight: Weight
    host: str
    field: str
    """Key of the configuration that it concerns."""
    value: Any
    what: str
    """What is wrong, and the remedy."""

    def __str__(self) -> str:
        return f"{self.host}: {self.field}={self.value!r}: {self.what}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    probes: dict[int, NodeProbe]
    """By place in the allocation; a node that is missing did not answer."""
    troubles: tuple[Trouble, ...]

    @property
    def refusals(self) -> tuple[Trouble, ...]:
        return tuple(trouble for trouble in self.troubles if trouble.weight is Weight.refuse)

    def enforce(self) -> None:
        """Raises UserError for the first refusal, which names the node and the remedy, and says how many more there are."""
        if self.refusals:
            first, *others = self.refusals
            more = f" (and {len(others)} more: gyre preflight shows all)" if others else ""
            raise UserError(first.field, first.value, f"{first.host}: {first.what}{more}")


def judge(probes: Mapping[int, NodeProbe], hosts: Sequence[str], config: Config) -> Verdict:
    """hosts: of the whole allocation, by place; a name that is not known is empty."""
    troubles = list(_absent(probes, hosts, config))
    for node in sorted(probes):
        probe = probes[node]
        for check in (_folders, _address, _gpus, _processes, _sandbox):
            troubles += check(probe, config)
        troubles += _connections(probe, probes, config)
        troubles += _beside_the_others(probe, probes)
    return Verdict(probes=dict(probes), troubles=tuple(troubles))


def _trouble(probe: NodeProbe, field: str, value: object, what: str, weight: Weight = Weight.refuse) -> Trouble:
    return Trouble(weight=weight, host=probe.host, field=field, value=value, what=what)


def _absent(probes: Mapping[int, NodeProbe], hosts: Sequence[str], config: Config) -> Iterator[Trouble]:
    for node, host in enumerate(hosts):
        if node not in probes:
            what = (
                "it did not answer: the run folder is not on a file system that it shares with the first node, or it cannot start Python "
                "there; name a shared folder, or leave the node out (cluster.slurm.options={exclude: NODE})"
            )
            yield Trouble(weight=Weight.refuse, host=host or f"node {node}", field="paths.run", value=config.paths.run, what=what)


def _folders(probe: NodeProbe, config: Config) -> Iterator[Trouble]:
    for name, place in (("run", probe.run), ("scratch", probe.scratch), ("cache", probe.cache)):
        field, value = f"paths.{name}", place.path
        if place.error:
            yield _trouble(probe, field, value, f"cannot be used there ({place.error}); name a folder that every node can write to")
        elif place.free_bytes < LEAST_BYTES[name]:
            least = size(LEAST_BYTES[name])
            yield _trouble(
                probe, field, value, f"{size(place.free_bytes)} are free there, at least {least} should be; make room, or name another"
            )
        elif place.free_inodes is not None and place.free_inodes < LEAST_INODES:
            what = f"room for {place.free_inodes} more files there, at least {LEAST_INODES} should be; remove some, or name another folder"
            yield _trouble(probe, field, value, what)


def _address(probe: NodeProbe, config: Config) -> Iterator[Trouble]:
    if probe.address_error:
        yield _trouble(probe, "network.interface", config.network.interface, probe.address_error)
    elif config.cluster.kind is ClusterKind.slurm and config.cluster.slurm.nodes > 1 and probe.address.startswith("127."):
        what = "other nodes cannot reach it there; name a network card (ib0), a network (10.1.0.0/16) or hostname"
        yield _trouble(probe, "network.interface", config.network.interface, what)


def _connections(probe: NodeProbe, probes: Mapping[int, NodeProbe], config: Config) -> Iterator[Trouble]:
    for way in probe.connections:
        other = probes[way.to].host if way.to in probes else f"node {way.to}"
        if way.error and not (way.to in probes and probes[way.to].address_error):
            yield _trouble(probe, *_blocked(way, other, config))
        elif not way.error and probe.node == 0 and way.to in probes:
            yield from _clock(probes[way.to], way, probe.host)


def _blocked(way: Connection, other: str, config: Config) -> tuple[str, object, str]:
    ports = config.network.port_range
    remedy = (
        "name another network.interface"
        if ports
        else "name ports that the site lets through in network.port_range, or another network.interface"
    )
    return ("network.port_range", ports, f"no connection to {other} at {way.address} ({way.error}); {remedy}")


def _clock(probe: NodeProbe, way: Connection, first: str) -> Iterator[Trouble]:
    # What the way itself took may be on either side.
    apart = max(0.0, abs(way.ahead_s) - way.seconds / 2)
    if apart > SHOWN_CLOCK_S:
        what = f"its clock is {apart:.1f} s {'ahead of' if way.ahead_s > 0 else 'behind'} that of {first}; have the site set it, or leave the node out"
        yield _trouble(probe, "clock", f"{way.ahead_s:+.1f} s", what, Weight.refuse if apart > MOST_CLOCK_S else Weight.note)


def _gpus(probe: NodeProbe, config: Config) -> Iterator[Trouble]:
    asked = config.cluster.slurm.gpus_per_node if config.cluster.kind is ClusterKind.slurm else 0
    if probe.gpu_error:
        yield _trouble(probe, "cluster.slurm.gpus_per_node", asked, f"{probe.gpu_error}; have the site look at the node, or leave it out")
    elif len(probe.gpus) < asked:
        what = f"{len(probe.gpus)} are to be seen there; ask for that many, or leave the node out"
        yield _trouble(probe, "cluster.slurm.gpus_per_node", asked, what)
    for index, gpu in enumerate(probe.gpus):
        if gpu.used_mb > USED_SHARE * gpu.memory_mb:
            what = f"{gpu.used_mb} of {gpu.memory_mb} MB are taken already; end what computes there, or leave the node out"
            yield _trouble(probe, "GPU", f"{index} ({gpu.name})", what)


def _processes(probe: NodeProbe, config: Config) -> Iterator[Trouble]:
    if probe.leftovers:
        pids = " ".join(str(process.pid) for process in probe.leftovers)
        what = f"left over from an earlier run, e.g. {probe.leftovers[0].command}; end them there: kill {pids}"
        # What holds a GPU takes it from this run; elsewhere it takes only some memory.
        yield _trouble(probe, "processes", pids, what, Weight.refuse if probe.gpus else Weight.note)


def _sandbox(probe: NodeProbe, config: Config) -> Iterator[Trouble]:
    if probe.sandbox and config.sandbox.kind is SandboxKind.bwrap:
        yield _trouble(
            probe, "sandbox.kind", "bwrap", f"does not work there ({probe.sandbox}); install bubblewrap, or set sandbox.kind=none"
        )
    elif probe.sandbox and config.sandbox.kind is SandboxKind.auto:
        what = f"NO SANDBOX there: bubblewrap does not work ({probe.sandbox}); harnesses would run with all rights of this user"
        yield _trouble(probe, "sandbox.kind", "auto", what, Weight.note)
    if probe.unseen is not None:
        yield _trouble(probe, probe.unseen.field, probe.unseen.path, probe.unseen.what("there"))


def _beside_the_others(probe: NodeProbe, probes: Mapping[int, NodeProbe]) -> Iterator[Trouble]:
    """What should be the same everywhere; most nodes are right."""
    for name in (*MUST_AGREE, *SHOULD_AGREE):
        usual = _most(probes, lambda one, name=name: one.versions.get(name, ""))  # type: ignore[misc]
        mine = probe.versions.get(name, "")
        if mine != usual:
            what = f"{name} is {usual or 'absent'} elsewhere; use one environment and one copy of the code on all nodes"
            yield _trouble(probe, name, mine, what, Weight.refuse if name in MUST_AGREE else Weight.note)
    usual = _most(probes, kinds)
    if kinds(probe) != usual:
        what = f"elsewhere there are {usual or 'none'}; cells should be of one kind: choose nodes by cluster.slurm.constraint"
        yield _trouble(probe, "GPUs", kinds(probe), what, Weight.note)


def _most(probes: Mapping[int, NodeProbe], told: Callable[[NodeProbe], str]) -> str:
    """What most nodes say; of two equally many, what the first node in order says."""
    return Counter(told(probes[node]) for node in sorted(probes)).most_common(1)[0][0]


def kinds(probe: NodeProbe) -> str:
    """For people: `8 x NVIDIA H200`; empty without GPUs."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(gpu.name for gpu in probe.gpus).items()))


def size(num_bytes: int) -> str:
    """For people: 1.5 GB."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
