"""KV between the engines of two cells: leases, reservations, pages that are read one after the other, and all that may break.

Lifecycle of a transfer: leased here ─▶ reserved there ─▶ read page by page, by the target ─▶ published there ─▶ quiet here. The
lease goes only when this side knows that the target reads no more: because it says so, or because it is dead.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gyre_hpc.engines.base import Block, Reservation
from gyre_hpc.engines.prefix_ledger import PrefixLedger
from gyre_hpc.machines.cell.actions import AbortLive, ListConversations, MoveKv, MoveResult, QuietKv
from gyre_hpc.protocol.identity import Version
from gyre_hpc.protocol.to_batch import KvFacts, Moved
from gyre_hpc.simulation.engine import PAGE
from gyre_hpc.simulation.network import Wire
from gyre_hpc.simulation.process import Running

if TYPE_CHECKING:
    from gyre_hpc.simulation.cell_world import CellWorld

_PAGE_S, _SLOW_PAGE_S, _SLOW = 0.05, 0.4, 0.25
"""Seconds per page, of the share _SLOW of transfers another number of them."""
_LOOK_S = 0.1
_PATIENCE_S = 0.2
"""One QuietKv waits for so long before it says how many still read."""


@dataclass(eq=False)
class Transfer:
    """Some conversations on their way to one target. Its reading lives in the target's process."""

    source: "CellWorld"
    target: "CellWorld"
    books: PrefixLedger
    """The source's, when it began."""
    their_books: PrefixLedger
    version: Version
    lease: int
    blocks: tuple[Block, ...]
    reservation: Reservation
    done: Callable[["Transfer"], None]
    page_s: float
    num_read: int = 0
    is_stopped: bool = False
    is_over: bool = False
    is_quiet: bool = False
    found: set[int] = field(default_factory=set)
    """Places that can be found at the target."""

    def read(self) -> None:
        """The target has read the next page, whether or not it was told meanwhile to stop."""
        target = self.target.process
        source = self.source.process
        if self.is_over:
            return
        if not source.alive:
            self._finish()
            return
        if source.sim.network.is_cut(source.name, target.name):
            target.later(_LOOK_S, self.read)
            return
        source.sim.watch.reads(self)
        self.num_read += 1
        if self.num_read < len(self.reservation.wanted) and not self.is_stopped:
            target.later(source.sim.kernel.short(self.page_s), self.read)
        else:
            self._finish()

    def _finish(self) -> None:
        """At the target: what came can be found from now on, if it serves the same weights still."""
        self.is_over = True
        engine = self.target.engine
        self.source.sim.watch.writes(self)
        if engine.version is not None:
            arrived = tuple(range(self.num_read))
            self.found |= set(self.their_books.pages.publish(self.reservation.number, arrived, engine.version))
            self.their_books.pages.cancel(self.reservation.number)
        wire = Wire(self.source.sim, self.target.process.name, self.source.process.name)
        wire.push(self.source.process, self.quiet)

    def quiet(self) -> None:
        """At the source: nobody reads any more. Said once, by the target or by its death."""
        self.is_over = True
        if self.is_quiet:
            return
        self.is_quiet = True
        self.books.pages.release(self.lease)
        self.done(self)

    def moved(self) -> tuple[str, ...]:
        """Conversations of which at least one page is at the target."""
        wanted = set(self.reservation.wanted)
        place = {index: number for number, index in enumerate(self.reservation.wanted)}
        here = {
            block.key
            for index, block in enumerate(self.blocks[: self.reservation.num_blocks])
            if index not in wanted or place[index] in self.found
        }
        parents = {block.key: block.parent for block in self.blocks}
        return tuple(call for block in self.blocks for call in block.calls if _root(block.key, parents) in here)


class Desk:
    """The KV side of one cell: what it gives, to whom, and who still reads."""

    def __init__(self, world: "CellWorld") -> None:
        self._world = world
        self.open: list[Transfer] = []
        """Given, and not known to be quiet."""

    def handlers(self) -> dict[type, Any]:
        return {ListConversations: self._list, MoveKv: self._move, QuietKv: self._quiet, AbortLive: self._abort}

    def facts(self) -> KvFacts:
        world = self._world
        capability = world.sim.scenario.kv
        if capability == "none" or world.engine.version is None:
            return KvFacts(capability=capability)
        index = int(world.process.name.partition("-")[2])
        before = f"cell-{(index - 1) % world.sim.scenario.cells}" if capability == "pd" and not world.prefills else ""
        return KvFacts(capability=capability, free_tokens=world.engine.books.pages.room() * PAGE, decodes_for=before)

    def _list(self, running: Running, action: ListConversations) -> None:
        def work() -> Any:
            self._world.engine.publish_all()
            return self._world.engine.books.pages.conversations()

        running.end_after(self._world.sim.kernel.short(0.01), work)

    def _move(self, running: Running, action: MoveKv) -> None:
        """One target after the other, until the deadline."""
        world, began = self._world, self._world.sim.kernel.now
        by_target: dict[str, list[str]] = {}
        for move in action.moves:
            by_target.setdefault(move.cell, []).append(move.call)
        queue = list(by_target.items())
        moved: list[Moved] = []
        state = {"tokens": 0, "over": False}
        trouble: list[str] = []

        def finish() -> None:
            if not state["over"]:
                state["over"] = True
                seconds = world.sim.kernel.now - began
                result = MoveResult(moved=tuple(moved), num_tokens=state["tokens"], seconds=seconds, trouble="; ".join(trouble))
                running.end(lambda: result)

        def arrived(transfer: Transfer) -> None:
            self.open.remove(transfer)
            moved.extend(Moved(call, transfer.target.process.name) for call in transfer.moved())
            state["tokens"] += PAGE * len(transfer.found)
            world.sim.counts["kv_pages_moved"] += len(transfer.found)
            if len(transfer.found) < len(transfer.reservation.wanted):
                world.sim.counts["kv_transfers_broken"] += 1
                trouble.append(f"{transfer.target.process.name} took {len(transfer.found)} of {len(transfer.reservation.wanted)} pages")
            next_one()

        def next_one() -> None:
            if state["over"]:
                return
            while queue:
                name, calls = queue.pop(0)
                if self._give(name, tuple(calls), arrived):
                    return
                trouble.append(f"{name} takes nothing")
            finish()

        def overdue() -> None:
            for transfer in self.open:
                self._ask_to_stop(transfer)
            finish()

        world.process.later(action.deadline_s, overdue)
        world.process.later(running.extra_s, next_one)

    def _give(self, name: str, calls: tuple[str, ...], arrived: Callable[[Transfer], None]) -> bool:
        """Begin a transfer; False when the target takes none."""
        world = self._world
        target = world.cell_at(world.process.addresses.get(name, ""))
        engine, books = world.engine, world.engine.books
        if target is None or engine.version is None or target.engine.version != engine.version or not target.engine.is_open:
            return False
        engine.publish_all()
        lease = books.pages.lease(calls)
        blocks = books.pages.blocks(lease)
        their_books = target.engine.books
        reservation = their_books.pages.reserve(engine.version, blocks)
        page_s = _SLOW_PAGE_S if world.sim.kernel.rng.random() < _SLOW else _PAGE_S
        transfer = Transfer(world, target, books, their_books, engine.version, lease, blocks, reservation, arrived, page_s)
        self.open.append(transfer)
        world.sim.counts["kv_transfers"] += 1
        target.process.on_death.append(lambda: world.process.later(0.05, lambda: self._reader_died(transfer)))
        if reservation.wanted:
            target.process.later(world.sim.kernel.short(page_s), transfer.read)
        else:
            target.process.later(0.001, transfer._finish)
        return True

    def _reader_died(self, transfer: Transfer) -> None:
        transfer.quiet()

    def _ask_to_stop(self, transfer: Transfer) -> None:
        def stop() -> None:
            transfer.is_stopped = True

        Wire(self._world.sim, self._world.process.name, transfer.target.process.name).push(transfer.target.process, stop)

    def _quiet(self, running: Running, action: QuietKv) -> None:
        world, until = self._world, self._world.sim.kernel.now + min(action.deadline_s, _PATIENCE_S)

        def look() -> None:
            pages = world.engine.books.pages
            num = pages.num_leases + pages.num_reservations
            if num and world.sim.kernel.now < until:
                world.process.later(_LOOK_S, look)
            else:
                world.sim.counts["kv_not_quiet"] += bool(num)
                running.end(lambda: num)

        world.process.later(0.002 + running.extra_s, look)

    def _abort(self, running: Running, action: AbortLive) -> None:
        world = self._world

        def work() -> int:
            world.engine.abort_all({one.call: one.cell for one in action.moved})
            world.sim.counts["aborted_with_kv"] += len(action.moved)
            return len(world.engine.live)

        running.end_after(world.sim.kernel.short(0.02), work)


def _root(key: bytes, parents: dict[bytes, bytes]) -> bytes:
    """Key of the first page of a chain."""
    while parents.get(key):
        key = parents[key]
    return key
