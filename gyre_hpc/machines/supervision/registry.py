"""The directory: who lives where. Numbered, sent to everybody registered, mirrored into the run folder."""

import math
from collections.abc import Iterable

from gyre_hpc.machines.base import Effect, Send, SetTimer, Start
from gyre_hpc.machines.supervision.actions import MirrorDirectory
from gyre_hpc.machines.supervision.child import Child, ChildState
from gyre_hpc.machines.supervision.nodes import Node, NodeState
from gyre_hpc.protocol.supervision import Directory, Entry

MIRROR, PUBLISH = "mirror", "publish"
_FEW = 64
"""Entries up to which spacing_s is long enough."""


class Registry:
    """Publishes a directory whose number grows with each change; at most one mirror action is under way."""

    def __init__(self, spacing_s: float) -> None:
        """spacing_s: see SupervisionSettings.publish_s."""
        self._spacing_s = spacing_s
        self._number = 0
        self._entries: Directory = Directory(0)
        self._nodes: tuple[Entry, ...] = ()
        """What it says of other nodes' supervisors."""
        self._sent_at, self._sent_number = -math.inf, 0
        self._is_put_off = False
        """PUBLISH is set."""
        self._mirrored = -1
        self._mirroring = False

    def publish(self, now: float, children: Iterable[Child], nodes: Iterable[Node], *, again: bool, due: bool = False) -> list[Effect]:
        """Send the directory to everybody if it changed, unless one was sent just now: then at PUBLISH (`due`). `again`: to those that have not
        said that they have the newest. Supervisors of other nodes stand in it once they were heard."""
        children, nodes = tuple(children), tuple(node for node in nodes if node.url)
        of_nodes = tuple(node.entry() for node in nodes)
        entries = (*(child.entry() for child in children), *of_nodes)
        changed, self._is_put_off = entries != self._entries.entries, self._is_put_off and not due
        if changed:
            self._number += 1
            self._entries = Directory(self._number, entries)
        is_unsent = self._number > self._sent_number
        if not (changed or again or (due and is_unsent)):
            return []
        # Our own mail goes by the directory that we send: orders to a node that is new follow at once.
        if not (again or due) and of_nodes == self._nodes and now - self._sent_at < self._wait_s():
            return [*self._put_off(), *self._mirror()]
        self._sent_number, self._nodes = self._number, of_nodes
        lacking = [child.name for child in children if child.state is ChildState.live and child.directory < self._number]
        # Before the first child registered, nodes are the only ones.
        lacking += [node.name for node in nodes if node.directory < self._number and (is_unsent or node.state is NodeState.here)]
        self._sent_at = now if lacking else self._sent_at
        return [*(Send(name, self._entries) for name in lacking), *self._mirror()]

    def _wait_s(self) -> float:
        """What each of many is sent grows with their number."""
        return self._spacing_s * max(1.0, len(self._entries.entries) / _FEW)

    def _put_off(self) -> list[Effect]:
        if self._is_put_off:
            return []
        self._is_put_off = True
        return [SetTimer(PUBLISH, self._wait_s())]

    def mirrored(self) -> list[Effect]:
        """The mirror action ended, well or not; a directory that changed since is written now."""
        self._mirroring = False
        return self._mirror()

    def _mirror(self) -> list[Effect]:
        if self._mirroring or self._mirrored == self._number:
            return []
        self._mirroring, self._mirrored = True, self._number
        return [Start(MIRROR, MirrorDirectory(self._entries))]
