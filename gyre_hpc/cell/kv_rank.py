"""What one rank does when KV moves: offers pages that are leased, fetches into pages that are reserved.

Runs beside the thread that computes; both touch pages alone that are theirs (engines/kv_pages.py). Thread-safe. The transport
lives as long as the engine is awake: it holds its memory.
"""

import threading
from collections.abc import Callable, Sequence

import msgspec

from gyre_hpc.cell import commands
from gyre_hpc.cell.kv_checks import Arriving, Checks, Sums
from gyre_hpc.cell.kv_wire import Fetched, Offered
from gyre_hpc.engines.base import PageBytes
from gyre_hpc.errors import GyreError
from gyre_hpc.transport.kv_base import BlockTransport, Bytes, Ticket

_ENCODER = msgspec.msgpack.Encoder()


class KvRank:
    """number: rank in the cell. page_bytes: this rank's pages; None while there are none, or without bytes. Troubles are
    results, never errors."""

    def __init__(self, number: int, page_bytes: Callable[[], PageBytes | None], new_transport: Callable[[], BlockTransport | None]) -> None:
        self._number, self._page_bytes, self._new_transport = number, page_bytes, new_transport
        self._checks = Checks()
        self._lock = threading.Lock()
        """Of what follows."""
        self._pages: PageBytes | None = None
        self._transport: BlockTransport | None = None

    def do(self, command: commands.KvCommand) -> bytes:
        """Result: msgpack, as the command says."""
        match command:
            case commands.KvReady():
                return _ENCODER.encode(self._ready())
            case commands.KvOffer():
                return _ENCODER.encode(self._offer(command))
            case commands.KvFetch():
                return _ENCODER.encode(self._fetch(command))
            case commands.KvWithdraw():
                return _ENCODER.encode(self._withdraw(command))
            case commands.KvEnd():
                self.close()
                return _ENCODER.encode(None)

    def close(self) -> None:
        """No offer is open any more, and the engine's memory is let go."""
        with self._lock:
            self._close()

    def _ready(self) -> str:
        try:
            self._open()
        except GyreError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _offer(self, command: commands.KvOffer) -> Offered:
        try:
            pages, transport = self._open()
            if pages is None or transport is None:
                return Offered()
            blocks = pages.leased(command.lease, command.indices)
            return Offered(transport.offer(blocks, command.deadline_s), self._checks.of(blocks))
        except (GyreError, KeyError, IndexError) as error:
            return Offered(trouble=f"{type(error).__name__}: {error}")

    def _fetch(self, command: commands.KvFetch) -> Fetched:
        try:
            pages, transport = self._open()
            if pages is None or transport is None:
                return Fetched()
            offered = command.offers[self._number]
            if offered.ticket is None:
                return Fetched(trouble=offered.trouble or "nothing is offered to this rank")
            blocks = pages.reserved(command.reservation, command.start, command.end)
            if len(offered.checksums) != len(blocks):
                return Fetched(trouble=f"{len(offered.checksums)} checksums for {len(blocks)} blocks")
            got = self._fetched(transport, offered.ticket, blocks, command.deadline_s)
        except (GyreError, KeyError, ValueError) as error:
            return Fetched(trouble=f"{type(error).__name__}: {error}")
        both = zip(got, offered.checksums, strict=True)
        return Fetched(tuple(command.start + place for place, (own, given) in enumerate(both) if own != given))

    def _fetched(self, transport: BlockTransport, ticket: Ticket, blocks: Sequence[Bytes], deadline_s: float) -> Sums:
        """Checksums of what came into `blocks`. Nobody looks at them afterwards, also when it raises."""
        arriving = Arriving(self._checks, blocks)
        try:
            transport.fetch(ticket, blocks, deadline_s, arriving.arrived)
            arriving.arrived(len(blocks))
        finally:
            sums = arriving.sums()
        return sums

    def _withdraw(self, command: commands.KvWithdraw) -> bool:
        """Whether nobody reads any more."""
        with self._lock:
            transport = self._transport
        if transport is None:
            return True
        quiet = [transport.withdraw(ticket) for ticket in command.tickets[self._number]]
        return all(quiet)

    def _open(self) -> tuple[PageBytes | None, BlockTransport | None]:
        """Pages as they are now, and the transport that knows their memory."""
        with self._lock:
            pages = self._page_bytes()
            if pages is not self._pages:
                self._close()
                transport = self._new_transport() if pages is not None else None
                if pages is not None and transport is not None:
                    transport.register(pages.memory)
                self._pages, self._transport = pages, transport
            return pages, self._transport

    def _close(self) -> None:
        transport, self._transport, self._pages = self._transport, None, None
        if transport is not None:
            transport.close()


def without_pages(command: commands.KvCommand) -> bytes:
    """What a rank says whose engine has no pages to move, or which has no engine."""
    match command:
        case commands.KvReady():
            return _ENCODER.encode("")
        case commands.KvOffer():
            return _ENCODER.encode(Offered())
        case commands.KvFetch():
            return _ENCODER.encode(Fetched())
        case commands.KvWithdraw():
            return _ENCODER.encode(True)
        case commands.KvEnd():
            return _ENCODER.encode(None)
