"""The other nodes of the run: who is there, what they are told, who is given up.

What follows for the children is the machine's affair; see Remote.heard and Remote.tick.
"""

from gyre_hpc.machines.base import Effect, Note, SetTimer
from gyre_hpc.machines.supervision.children import Children
from gyre_hpc.machines.supervision.nodes import Hearing, Node, NodeState
from gyre_hpc.machines.supervision.settings import SupervisionSettings
from gyre_hpc.protocol.supervision import NodeReport

ARRIVAL = "arrival"
_REMEMBERED = 8


class Remote:
    """All nodes but this one, by the name of their supervisor."""

    def __init__(self, settings: SupervisionSettings, children: Children) -> None:
        self._settings, self._children = settings, children
        self._nodes = {name: Node(name=name, host=settings.hosts.get(name, "")) for name in settings.nodes}

    @property
    def all(self) -> tuple[Node, ...]:
        return tuple(self._nodes.values())

    def begin(self) -> list[Effect]:
        """How long each planned one may take to come."""
        return [SetTimer(f"{ARRIVAL}/{name}", self._settings.start_deadline_s) for name in self._nodes]

    def are_here(self, places: tuple[str, ...]) -> bool:
        return all(name == self._settings.name or self._nodes[name].state is NodeState.here for name in places)

    def are_heard(self, places: tuple[str, ...]) -> bool:
        """Nothing keeps these nodes from being asked: what they do not answer for is not their connection's fault."""
        return all(name == self._settings.name or self._nodes[name].silent_ticks <= 1 for name in places)

    def late_arrival(self, name: str) -> Node | None:
        """The time of a planned node is over; return it if it is not here."""
        node = self._nodes[name]
        return node if node.state is NodeState.awaited else None

    def hear(self, report: NodeReport) -> tuple[Node, Hearing]:
        """A report of whoever says so."""
        node = self._nodes.get(report.node)
        if node is None:
            node = self._nodes[report.node] = Node(name=report.node, is_planned=False)
        return node, node.hear(report)

    def tick(self) -> list[Node]:
        """One more tick without a report; return those whose silence is too long."""
        silent = []
        for node in self._nodes.values():
            if node.state is NodeState.here:
                node.silent_ticks += 1
                if node.silent_ticks > self._settings.node_silence_ticks:
                    silent.append(node)
        return silent

    def give_up(self, node: Node, reason: str) -> list[Effect]:
        """Gone for the attempt."""
        node.give_up(reason)
        if not node.is_planned:
            self._nodes[node.name] = self._nodes.pop(node.name)  # in the order of their going
        kind = "node_lost" if node.is_planned else "node_left"
        return [Note(kind, {"node": node.name, "host": node.host, "reason": reason})]

    def orders(self, *, is_over: bool, again: bool) -> list[Effect]:
        """What changed for whom; `again`: to everybody who is here."""
        effects: list[Effect] = []
        for node in self._nodes.values():
            if node.state is NodeState.here:
                effects += node.orders(self._children.all, is_over, again=again)
        return effects

    def dismiss(self, node: Node) -> list[Effect]:
        """A node that has no part in the run any more hears so, and why, whenever it speaks."""
        return node.orders((), True, again=True, refused=node.lost)

    def forget_gone(self) -> None:
        """Of nodes that nobody planned and that are gone, the newest ones are remembered, for people: such nodes come and go without end."""
        gone = [node for node in self._nodes.values() if not node.is_planned and node.state is NodeState.given_up]
        over = [node for node in gone if not any(child.is_running for child in self._children.on(node.name))]
        for node in over[: max(0, len(over) - _REMEMBERED)]:
            del self._nodes[node.name]
            self._children.forget(node.name)

    @property
    def have_left(self) -> bool:
        """Every node that is here knows that the run is over."""
        return all(node.has_left for node in self._nodes.values())
