"""Who reads which offer: the source's side of kinds whose ends are in different processes.

A reader connects, shows the proof of a ticket, and is told how long the offer stands. Then it reads, or is sent, the blocks; says that
it is quiet; and may claim the next offer on the same connection. All of this is small: the blocks travel elsewhere.

Invariants:
  - an offer is claimed once; one that is withdrawn or over cannot be claimed;
  - an offer is quiet when nobody claimed it, when its reader said so, or when its deadline is over: readers stop by then.
"""

import contextlib
import enum
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.ports import listen
from gyre_hpc.transport import kv_proof
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.kv_greeting import GREETING_S, QUIET, Answer, Claim, receive, send
from gyre_hpc.transport.kv_proof import READER, SOURCE

_IDLE_S = 60.0
"""A connection without a claim is closed after this."""
_JOIN_S = 1.0


class State(enum.Enum):
    """open → reading → quiet | lost"""

    OPEN = enum.auto()
    READING = enum.auto()
    QUIET = enum.auto()
    LOST = enum.auto()
    """The reader vanished without a word."""


class Session(ABC):
    """What a kind keeps for one connection of a reader."""

    @abstractmethod
    def bring(self, ticket: Ticket, line: str, until: float) -> None:
        """The source's share of moving the blocks, until `until` (monotonic). Raises TransferFailed, OSError or RuntimeError."""

    @abstractmethod
    def stop(self) -> None:
        """From another thread: the offer is withdrawn; `bring`, or the reader, ends soon. Raises OSError."""

    @abstractmethod
    def close(self) -> None:
        """The connection is over; also from another thread, to end `bring`."""


class Offer:
    """One offer, guarded by its desk."""

    def __init__(self, ticket: Ticket, deadline_s: float) -> None:
        self.ticket, self.shown = ticket, kv_proof.shown_by(READER, ticket)
        self.until = monotonic_s() + deadline_s
        self.state = State.OPEN
        self.is_withdrawn = False
        self.visit: _Visit | None = None


class Desk:
    """Listens on a free port of `host` from construction to `close`. Raises TransferFailed when it cannot."""

    def __init__(self, host: str, new_session: Callable[[socket.socket], Session]) -> None:
        try:
            self._listener = listen(host)
        except OSError as error:
            raise TransferFailed(f"cannot listen on {host}: {error}") from error
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.changed = threading.Condition()
        self._new_session = new_session
        self._offers: dict[str, Offer] = {}
        self._visits: set[_Visit] = set()
        self._thread = threading.Thread(target=self._accept, name="kv-desk", daemon=True)
        self._thread.start()

    def open(self, ticket: Ticket, deadline_s: float) -> None:
        """The offer may be claimed from now on."""
        with self.changed:
            self._offers[ticket.offer] = Offer(ticket, deadline_s)

    def withdraw(self, nonce: str, patience_s: float) -> bool:
        """End the offer; a reader is asked to stop and given `patience_s` to say that it has. True: quiet."""
        with self.changed:
            offer = self._offers.pop(nonce, None)
            if offer is None or offer.state is State.OPEN:
                return True
            offer.is_withdrawn = True
            if offer.visit is not None:
                offer.visit.stop()
                self.changed.wait_for(lambda: offer.state is not State.READING, patience_s)
            return offer.state is State.QUIET or monotonic_s() >= offer.until

    def close(self) -> None:
        """Every offer ends, every reader is hung up on."""
        with self.changed:
            self._offers.clear()
            visits = list(self._visits)
        with contextlib.suppress(OSError):  # wakes the accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for visit in visits:
            visit.hang_up()
        for visit in visits:
            visit.thread.join(_JOIN_S)

    def claim(self, claim: Claim, visit: "_Visit") -> Offer | str:
        """The offer, now being read by `visit`, or why it is not."""
        with self.changed:
            offer = next((o for o in self._offers.values() if kv_proof.is_same(claim.shown, o.shown)), None)
            if offer is None:
                return "the source does not know this offer: wrong nonce or sizes, or withdrawn"
            if offer.state is not State.OPEN:
                return "the offer was fetched already"
            if monotonic_s() >= offer.until:
                return "the offer's deadline is over"
            offer.state, offer.visit = State.READING, visit
            return offer

    def leave(self, visit: "_Visit") -> None:
        with self.changed:
            self._visits.discard(visit)

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            visit = _Visit(self, peer, self._new_session(peer))
            with self.changed:
                self._visits.add(visit)
            visit.thread.start()


class _Visit:
    """One connection, in a thread of its own."""

    def __init__(self, desk: Desk, plain: socket.socket, session: Session) -> None:
        self._desk, self._plain, self._session = desk, plain, session
        self._peer = DeadlineSocket(plain, GREETING_S)
        self.thread = threading.Thread(target=self._run, name="kv-reader", daemon=True)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._session.stop()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._plain.shutdown(socket.SHUT_RDWR)
        self._session.close()

    def _run(self) -> None:
        try:
            # The reader tells what went wrong; here nobody listens.
            with self._plain, contextlib.suppress(OSError, RuntimeError, TransferFailed):
                while self._serve(receive(self._peer, Claim)):
                    self._peer.extend(_IDLE_S)
        finally:
            self._session.close()
            self._desk.leave(self)

    def _serve(self, claim: Claim) -> bool:
        """Whether the connection can be used again."""
        offer = self._desk.claim(claim, self)
        if isinstance(offer, str):
            send(self._peer, Answer(refused=offer))
            return True
        state = State.LOST
        try:
            send(self._peer, Answer(kv_proof.shown_by(SOURCE, offer.ticket), offer.until - monotonic_s()))
            self._session.bring(offer.ticket, claim.line, offer.until)
            self._peer.extend(offer.until - monotonic_s())
            word = bytearray(1)
            if self._peer.recv_into(word) and word == QUIET:
                state = State.QUIET
        finally:
            with self._desk.changed:
                offer.state, offer.visit = state, None
                self._desk.changed.notify_all()
        return state is State.QUIET and not offer.is_withdrawn
