"""Who reads which offer: the source's side of one-sided kinds, whose library never says when a reader is done.

A reader connects, shows the proof of its ticket, is told how long the offer still stands, reads, and says that it is quiet. All of
this is small; the blocks travel elsewhere.

Invariants:
  - an offer is claimed once; a withdrawn or outdated one cannot be claimed;
  - an offer is quiet when nobody claimed it, when its reader said so, or when its deadline is over: readers stop by then.
"""

import contextlib
import enum
import socket
import threading

from gyre_hpc.clock import monotonic_s
from gyre_hpc.errors import TransferFailed
from gyre_hpc.ports import listen
from gyre_hpc.transport import kv_proof
from gyre_hpc.transport.deadline_socket import DeadlineSocket
from gyre_hpc.transport.kv_base import Ticket
from gyre_hpc.transport.kv_greeting import GREETING_S, QUIET, STOP, Answer, Claim, receive, send
from gyre_hpc.transport.kv_proof import READER, SOURCE


class State(enum.Enum):
    """open → reading → quiet | lost;  open → quiet, by withdrawal."""

    OPEN = enum.auto()
    READING = enum.auto()
    QUIET = enum.auto()
    LOST = enum.auto()
    """The reader vanished without a word."""


class _Offer:
    def __init__(self, ticket: Ticket, deadline_s: float) -> None:
        self.ticket = ticket
        self.until = monotonic_s() + deadline_s
        self.state = State.OPEN
        self.reader: DeadlineSocket | None = None


class Desk:
    """Listens on a free port of `host` from construction to `close`."""

    def __init__(self, host: str) -> None:
        self._listener = listen(host)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._changed = threading.Condition()
        self._offers: dict[str, _Offer] = {}
        self._thread = threading.Thread(target=self._accept, name="kv-desk", daemon=True)
        self._thread.start()

    def open(self, ticket: Ticket, deadline_s: float) -> None:
        """The offer may be claimed from now on."""
        with self._changed:
            self._offers[ticket.offer] = _Offer(ticket, deadline_s)

    def withdraw(self, nonce: str, patience_s: float) -> bool:
        """End the offer; a reader is asked to stop and given `patience_s` to say that it has. True: quiet."""
        with self._changed:
            offer = self._offers.pop(nonce, None)
            if offer is None or offer.state is State.OPEN:
                return True
            if offer.state is State.READING and offer.reader is not None:
                with contextlib.suppress(OSError):
                    offer.reader.sendall(STOP)
                self._changed.wait_for(lambda: offer.state is not State.READING, patience_s)
            return offer.state is State.QUIET or monotonic_s() >= offer.until

    def close(self, patience_s: float) -> None:
        """Every offer ends; no thread stays but those of readers that do not answer, until their deadlines."""
        for nonce in list(self._offers):
            self.withdraw(nonce, patience_s)
        with contextlib.suppress(OSError):  # wakes the accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), name="kv-reader", daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with plain, contextlib.suppress(OSError, TransferFailed):
            peer = DeadlineSocket(plain, GREETING_S)
            offer = self._claimed(receive(peer, Claim), peer)
            if isinstance(offer, str):
                send(peer, Answer(refused=offer))
                return
            state = State.LOST
            try:
                send(peer, Answer(kv_proof.shown_by(SOURCE, offer.ticket), offer.until - monotonic_s()))
                peer.extend(offer.until - monotonic_s())
                word = bytearray(1)
                if peer.recv_into(word) and word == QUIET:
                    state = State.QUIET
            finally:
                with self._changed:
                    offer.state, offer.reader = state, None
                    self._changed.notify_all()

    def _claimed(self, claim: Claim, peer: DeadlineSocket) -> _Offer | str:
        """The offer, now being read, or why it is not."""
        with self._changed:
            offer = next((o for o in self._offers.values() if kv_proof.is_right(claim.shown, READER, o.ticket)), None)
            if offer is None:
                return "the source does not know this offer: wrong nonce or sizes, or withdrawn"
            if offer.state is not State.OPEN:
                return "the offer was fetched already"
            if monotonic_s() >= offer.until:
                return "the offer's deadline is over"
            offer.state, offer.reader = State.READING, peer
            return offer
