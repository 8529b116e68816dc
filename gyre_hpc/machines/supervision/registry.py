"""The directory: who lives where. Numbered, sent to everybody registered, mirrored into the run folder."""

from collections.abc import Iterable

from gyre_hpc.machines.base import Effect, Send, Start
from gyre_hpc.machines.supervision.actions import MirrorDirectory
from gyre_hpc.machines.supervision.child import Child, ChildState
from gyre_hpc.machines.supervision.nodes import Node, NodeState
from gyre_hpc.protocol.supervision import Directory

MIRROR = "mirror"


class Registry:
    """Publishes a directory whose number grows with each change; at most one mirror action is under way."""

    def __init__(self) -> None:
        self._number = 0
        self._entries: Directory = Directory(0)
        self._mirrored = -1
        self._mirroring = False

    def publish(self, children: Iterable[Child], nodes: Iterable[Node], *, again: bool) -> list[Effect]:
        """Send the directory if it changed, or in any case when `again`. Supervisors of other nodes stand in it once they were heard."""
        children, nodes = tuple(children), tuple(node for node in nodes if node.url)
        entries = (*(child.entry() for child in children), *(node.entry() for node in nodes))
        changed = entries != self._entries.entries
        if changed:
            self._number += 1
            self._entries = Directory(self._number, entries)
        if not (changed or again):
            return []
        sends: list[Effect] = [Send(child.name, self._entries) for child in children if child.state is ChildState.live]
        # Our own mail goes by the directory that we send: before the first child registered, this is the only one.
        sends += [Send(node.name, self._entries) for node in nodes if changed or node.state is NodeState.here]
        return sends + self._mirror()

    def mirrored(self) -> list[Effect]:
        """The mirror action ended, well or not; a directory that changed since is written now."""
        self._mirroring = False
        return self._mirror()

    def _mirror(self) -> list[Effect]:
        if self._mirroring or self._mirrored == self._number:
            return []
        self._mirroring, self._mirrored = True, self._number
        return [Start(MIRROR, MirrorDirectory(self._entries))]
