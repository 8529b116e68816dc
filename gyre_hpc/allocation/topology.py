"""The tree of switches: read from text, checked, and put in order.

SLURM: topology.conf or `scontrol show topology` (trees; a block of topology/block counts as a switch of its own). YAML:

    switches:
      - {name: leaf1, nodes: "gpu[01-02]"}
      - {name: spine, switches: "leaf[1-2]"}

`scontrol` repeats below a higher switch all nodes of its lower ones; only those that no lower one names hang on it directly.
Invariants: the order of the input changes nothing; a node hangs on one switch, a switch below one other at most, no circle.
"""

from collections.abc import Sequence

from gyre_hpc.allocation.base import Switch
from gyre_hpc.allocation.hostlist import expand, natural
from gyre_hpc.allocation.slurm_text import has_records, records
from gyre_hpc.allocation.yaml_text import entries, text_of
from gyre_hpc.errors import UserError

_KEYS = ("SwitchName", "BlockName")


def read_topology(text: str, field: str = "--topology") -> tuple[Switch, ...]:
    """Switches as they are named there. Raises UserError; `Tree` checks how they hang together."""
    if has_records(text, _KEYS):
        found = [_from_record(record, field) for record in records(text, _KEYS)]
    else:
        allowed = frozenset({"name", "switches", "nodes"})
        found = [_from_entry(entry, f"{field} switches[{n}]") for n, entry in enumerate(entries(text, "switches", allowed, field))]
    if not found:
        raise UserError(field, text[:40], "names no switch; leave it out when all nodes are equally near")
    return tuple(found)


def _from_record(record: dict[str, str], field: str) -> Switch:
    name = record.get("switchname") or record.get("blockname", "")
    return _switch(name, record.get("switches", ""), record.get("nodes", ""), field)


def _from_entry(entry: dict[str, object], field: str) -> Switch:
    name, switches, nodes = (text_of(entry, key, field) for key in ("name", "switches", "nodes"))
    return _switch(name, switches, nodes, field)


def _switch(name: str, switches: str, nodes: str, field: str) -> Switch:
    if not name:
        raise UserError(field, name, "a switch has no name; give each one a name of its own")

    def below(text: str, what: str) -> tuple[str, ...]:
        return expand(text, f"{field} {name}.{what}") if text not in ("", "(null)") else ()

    return Switch(name=name, switches=below(switches, "Switches"), nodes=below(nodes, "Nodes"))


class Tree:
    """Switches of a checked topology, children before parents, each level in natural order of names."""

    def __init__(self, switches: Sequence[Switch], field: str = "--topology") -> None:
        self._field = field
        self._by_name = {switch.name: switch for switch in switches}
        if len(self._by_name) < len(switches):
            twice = sorted({switch.name for switch in switches if sum(other.name == switch.name for other in switches) > 1}, key=natural)
            raise UserError(field, twice[0], "two switches have this name; give each one a name of its own")
        self.parent = self._parents()
        self.order: list[str] = []
        """Children before parents."""
        self.height: dict[str, int] = {}
        """1: only nodes below it."""
        self.direct: dict[str, tuple[str, ...]] = {}
        """Nodes that hang on the switch itself, in natural order."""
        for name in sorted(set(self._by_name) - set(self.parent), key=natural):
            self._visit(name)
        if len(self.order) < len(self._by_name):
            rest = min(set(self._by_name) - set(self.order), key=natural)
            raise UserError(field, rest, "this switch hangs below itself; a topology is a tree")
        self.switch_of: dict[str, str] = {}
        self._hang_nodes()

    def children(self, name: str) -> list[str]:
        """Switches directly below, in natural order."""
        return sorted(set(self._by_name[name].switches), key=natural)

    def _parents(self) -> dict[str, str]:
        parent: dict[str, str] = {}
        for switch in self._by_name.values():
            for child in set(switch.switches):
                if child not in self._by_name:
                    raise UserError(f"{self._field} {switch.name}.Switches", child, "no switch has this name; name it, or leave it out")
                if child in parent:
                    other = parent[child]
                    raise UserError(
                        self._field, child, f"hangs below {min(other, switch.name)} and {max(other, switch.name)}; below one only"
                    )
                parent[child] = switch.name
        return parent

    def _visit(self, root: str) -> None:
        """Post-order, without recursion: a chain may be long."""
        stack = [(root, False)]
        while stack:
            name, is_done = stack.pop()
            if is_done:
                self.height[name] = 1 + max((self.height[child] for child in self.children(name)), default=0)
                self.order.append(name)
            else:
                stack.append((name, True))
                stack += [(child, False) for child in reversed(self.children(name))]

    def _hang_nodes(self) -> None:
        below: dict[str, set[str]] = {}
        for name in self.order:
            under = set().union(*(below[child] for child in self.children(name)))
            own = set(self._by_name[name].nodes) - under
            self.direct[name] = tuple(sorted(own, key=natural))
            below[name] = under | own
            for node in self.direct[name]:
                if node in self.switch_of:
                    raise UserError(self._field, node, f"hangs on {self.switch_of[node]} and on {name}; name each node below one switch")
                self.switch_of[node] = name
