"""The cut of an allocation into equal cells: pure, deterministic, whatever the order of the input.

Shape. A cell of N ranks lies within one node where N devices of its kind are there; a larger one takes whole nodes, equally
many ranks of each: the fewest nodes m with m | N whose N / m devices are there. Nodes of equal kind and equal m form a pool.

Invariants (each has a test):
  - a device is in one cell or left over, never both; all cells have N ranks of one kind, a node's ranks are consecutive;
  - for *every* node and *every* switch, as many cells lie within it as its devices allow: no partition of these shapes has
    more. So the number of cells is the largest possible, and the sum of their heights (switches between a cell's nodes) the
    smallest: pooling from the leaves up takes floor(nodes below / m) cells at each switch and hands fewer than m nodes on.
Which of those nodes meet above is best fit: usually, not provably, the fewest lower switches in one cell.
"""

from collections.abc import Iterable, Sequence

from gyre_hpc.allocation.base import NO_DEVICE, Cell, Leftover, Node, Partition, Rank, Reason, Switch
from gyre_hpc.allocation.hostlist import natural
from gyre_hpc.allocation.topology import Tree
from gyre_hpc.errors import UserError

MOST_RANKS = 65_536
_Group = tuple[str, list[Node]]
"""Switch and nodes of one cell to be."""


def partition(nodes: Iterable[Node], switches: Sequence[Switch] = (), *, ranks_per_cell: int, kind: str = "") -> Partition:
    """Cut `nodes` into cells. Without `switches` all nodes are equally near. With `kind` only that one makes cells.
    Raises UserError for ranks out of range, a kind that is not there, and a topology that is no tree."""
    if not 1 <= ranks_per_cell <= MOST_RANKS:
        raise UserError("--ranks", ranks_per_cell, f"a cell has 1 to {MOST_RANKS} ranks")
    known = list(nodes)
    tree = Tree(switches) if switches else Tree([Switch(name="", nodes=tuple({node.name for node in known}))])
    places = {name: place for place, name in enumerate(node for switch in tree.order for node in tree.direct[switch])}
    known.sort(key=lambda node: (places.get(node.name, len(places)), natural(node.name), node.kind))
    with_devices = [node for node in known if node.num_devices]
    kinds = sorted({node.kind for node in with_devices}, key=natural)
    if kind and kind not in kinds:
        raise UserError("--kind", kind, f"no node has it; there is {', '.join(kinds) or 'no device at all'}")
    cells: list[Cell] = []
    leftovers: list[Leftover] = []
    for each in kinds:
        own = [node for node in with_devices if node.kind == each]
        if kind and each != kind:
            leftovers += [_left(node, 0, Reason.other_kind, f"cells of kind {kind} were asked for") for node in own]
            continue
        made, left = _cut(own, tree, ranks_per_cell)
        cells += [_named(cell, number) for number, cell in enumerate(sorted(made, key=lambda cell: _place(cell, places)))]
        leftovers += left
    having = {node.name for node in with_devices}
    without = sorted({node.name for node in known if node.kind == NO_DEVICE and node.name not in having}, key=natural)
    leftovers.sort(key=lambda left: (natural(left.kind), natural(left.node), left.devices))
    return Partition(ranks_per_cell=ranks_per_cell, cells=tuple(cells), leftovers=tuple(leftovers), without_devices=tuple(without))


def nodes_per_cell(ranks: int, num_devices: int) -> int:
    """Fewest nodes with `num_devices` each that can give equally many of `ranks`."""
    return next(num for num in range(1, ranks + 1) if ranks % num == 0 and ranks // num <= num_devices)


def _cut(nodes: list[Node], tree: Tree, ranks: int) -> tuple[list[Cell], list[Leftover]]:
    """Nodes of one kind, in order of the tree."""
    cells: list[Cell] = []
    leftovers: list[Leftover] = []
    pools: dict[int, list[Node]] = {}
    for node in nodes:
        num = nodes_per_cell(ranks, node.num_devices)
        if num > 1:
            pools.setdefault(num, []).append(node)
            continue
        whole = node.num_devices // ranks
        cells += [_cell([node], ranks, first=ranks * index) for index in range(whole)]
        if node.num_devices > whole * ranks:
            leftovers.append(_left(node, whole * ranks, Reason.too_few_on_node, f"too few for one more cell of {ranks}"))
    for num, pool in pools.items():
        groups, left = _pool(pool, tree, num, ranks // num)
        leftovers += left
        for switch, group in groups:
            cells.append(_cell(group, ranks // num, switch=switch, height=tree.height[switch]))
            leftovers += [
                _left(node, ranks // num, Reason.too_few_on_node, f"each node of a cell gives {ranks // num}")
                for node in group
                if node.num_devices > ranks // num
            ]
    return cells, leftovers


def _pool(pool: list[Node], tree: Tree, num: int, share: int) -> tuple[list[_Group], list[Leftover]]:
    """Groups of `num` nodes, each below the lowest switch that can hold it."""
    groups: list[_Group] = []
    leftovers: list[Leftover] = []
    order = {node.name: place for place, node in enumerate(pool)}
    by_name = {node.name: node for node in pool}
    rest: dict[str, list[Node]] = {}
    for switch in tree.order:
        own = [by_name[name] for name in tree.direct[switch] if name in by_name]
        pieces = [*(rest.pop(child) for child in tree.children(switch)), own]
        made, rest[switch] = _fit([piece for piece in pieces if piece], num)
        groups += [(switch, sorted(group, key=lambda node: order[node.name])) for group in made]
    for root, left in rest.items():
        below = f" below {root}" if root else ""
        text = f"a cell needs {num} nodes with {share} devices each; {len(left)} left{below}"
        leftovers += [_left(node, 0, Reason.too_few_nodes, text) for node in left]
    text = f"a cell needs {num} nodes; the topology does not name this one"
    leftovers += [_left(node, 0, Reason.no_switch, text) for node in pool if node.name not in tree.switch_of]
    return groups, leftovers


def _fit(pieces: list[list[Node]], num: int) -> tuple[list[list[Node]], list[Node]]:
    """(groups of `num` nodes, the fewer than `num` left). A group begins with the largest piece and is filled with the
    largest that fits; a piece is split only when none does."""
    groups: list[list[Node]] = []
    while sum(map(len, pieces)) >= num:
        group: list[Node] = []
        while len(group) < num:
            need = num - len(group)
            fitting = [piece for piece in pieces if len(piece) <= need]
            piece = max(fitting, key=len) if fitting else min(pieces, key=len)
            group += piece[:need]
            del piece[:need]
            pieces = [piece for piece in pieces if piece]
        groups.append(group)
    return groups, [node for piece in pieces for node in piece]


def _cell(nodes: list[Node], share: int, *, first: int = 0, switch: str = "", height: int = 0) -> Cell:
    ranks = tuple(Rank(node=node.name, device=first + index) for node in nodes for index in range(share))
    return Cell(name="", kind=nodes[0].kind, ranks=ranks, switch=switch, height=height)


def _named(cell: Cell, number: int) -> Cell:
    return Cell(name=f"cell-{number}", kind=cell.kind, ranks=cell.ranks, switch=cell.switch, height=cell.height)


def _place(cell: Cell, places: dict[str, int]) -> tuple[object, ...]:
    first = cell.ranks[0]
    return places.get(first.node, len(places)), natural(first.node), first.device


def _left(node: Node, first: int, reason: Reason, text: str) -> Leftover:
    return Leftover(node=node.name, kind=node.kind, devices=tuple(range(first, node.num_devices)), reason=reason, text=text)
